#include "isochron/emulate/launch.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <utility>

#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/core/trace/json.h"
#include "isochron/emulate/cgroup.h"
#include "isochron/emulate/duty_cycle.h"
#include "isochron/emulate/enter.h"
#include "isochron/emulate/job_folder.h"
#include "isochron/emulate/machine.h"
#include "isochron/emulate/mpirun.h"
#include "isochron/emulate/network.h"
#include "isochron/emulate/owner.h"
#include "isochron/emulate/process.h"
#include "isochron/emulate/supervisor.h"
#include "isochron/io/join_requests.h"
#include "isochron/io/worker_variables.h"

namespace isochron::emulate {
namespace {

namespace fs = std::filesystem;

constexpr int kNotThere = 128 + SIGKILL;  // until it joins, as if it had been lost
constexpr int kMostStarts = 3;            // of a job that loses a worker before its first step

void check_cores(const sim::ClusterSpec& cluster) {
  for (const std::vector<Limits>& stage : Schedule(cluster).stages()) {
    for (std::size_t worker = 0; worker < stage.size(); ++worker) {
      require(
          stage[worker].cores >= kFewestCores,
          "worker \"" + cluster.workers[worker].name + "\": cores",
          json_number(stage[worker].cores),
          json_number(kFewestCores) + " or more, the smallest CPU quota");
    }
  }
}

/// What all of one launch share.
struct Plan {
  std::vector<std::string> names;     // of the workers
  std::optional<Schedule> schedule;   // none: no limits
  std::vector<std::int64_t> periods;  // of the workers' quotas, microseconds
  std::vector<Quota> quotas;          // at the start
};

Plan make_plan(const LaunchOptions& options) {
  Plan plan;
  if (!options.cluster) {
    for (std::int64_t worker = 0; worker < options.workers; ++worker) {
      plan.names.push_back("w" + std::to_string(worker));
    }
    return plan;
  }
  plan.schedule.emplace(*options.cluster);
  const std::vector<std::vector<Limits>> stages = plan.schedule->stages();
  for (std::size_t worker = 0; worker < options.cluster->workers.size(); ++worker) {
    const auto cores = [worker](const std::vector<Limits>& stage) { return stage[worker].cores; };
    const double fewest = cores(std::ranges::min(stages, {}, cores));
    plan.names.push_back(options.cluster->workers[worker].name);
    plan.periods.push_back(period_for(fewest, options.period_microseconds));
    plan.quotas.push_back(quota_for(cores(stages.front()), plan.periods.back()));
    if (plan.periods.back() > options.period_microseconds) {
      options.say(
          "worker \"" + plan.names.back() + "\": a period of " + std::to_string(plan.periods.back() / 1000) +
          " ms, since there is no quota below 1 ms");
    }
  }
  return plan;
}

std::unique_ptr<CpuLimiter> make_limiter(
    const LaunchOptions& options, const std::vector<Quota>& quotas, const std::optional<CgroupTree>& tree) {
  if (options.throttle != Throttle::kDutyCycle) {
    try {
      if (!tree) {
        throw Error("this system has no control groups for CPU time");
      }
      auto groups = std::make_unique<CpuGroups>(*tree, owner_name(), quotas);
      options.say("CPU quotas by control groups, version " + std::to_string(tree->version));
      return groups;
    } catch (const Error& error) {
      if (options.throttle == Throttle::kCgroup) {
        throw;
      }
      options.say(error.what());
    }
  }
  options.say("CPU quotas by the duty cycle: workers are stopped and continued, which is coarser than control groups");
  return std::make_unique<DutyCycle>(quotas);
}

Variables variables_of(const sim::WorkerSpec& worker) {
  Variables variables{
      {io::kWorkerKindVariable, worker.kind},
      {io::kWorkerCoresVariable, json_number(worker.cores)},
      {io::kMinBatchVariable, std::to_string(worker.min_batch)},
      {io::kGranularityVariable, std::to_string(worker.granularity)}};
  if (worker.max_batch != kNoLimit) {
    variables.emplace_back(io::kMaxBatchVariable, std::to_string(worker.max_batch));
  }
  if (worker.gpu_share > 0.0) {
    variables.emplace_back("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", json_number(worker.gpu_share));
  }
  return variables;
}

void add_job_variables(Variables& variables, const fs::path& folder, const std::string& name) {
  variables.emplace_back(io::kWorkerNameVariable, name);
  variables.emplace_back(io::kStepFileVariable, (folder / "step").string());
  variables.emplace_back(io::kJobFolderVariable, folder.string());
  variables.emplace_back("TMPDIR", fs::temp_directory_path().string());  // mpirun has another one
  for (const char* const threads : {"OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"}) {
    variables.emplace_back(threads, "1");  // threads that wait for each other would burn the quota
  }
}

/// "hl8: w0 0.1875, w1 0.1875, w2 0.125, w3 1 cores"
std::string describe(const sim::ClusterSpec& cluster) {
  std::string text = cluster.name;
  for (const sim::WorkerSpec& worker : cluster.workers) {
    text += (&worker == &cluster.workers.front() ? ": " : ", ") + worker.name + " " + json_number(worker.cores);
  }
  return text + " cores" + (cluster.changes.empty() ? "" : " at first");
}

std::unique_ptr<OwnFolder> own_shared_memory() {
  try {
    return std::make_unique<OwnFolder>(kSharedMemory);
  } catch (const Error&) {
    return nullptr;  // a system without it
  }
}

/// What the workers are put into; in the order in which it is made.
struct Surroundings {
  OwnFolder folder;
  std::unique_ptr<OwnFolder> shared_memory = own_shared_memory();  // of MPI; null: where MPI has it by default
  io::StepFile step_file = io::StepFile::create(folder.path() / "step");
  std::optional<Network> network;       // none: all share this machine's
  std::unique_ptr<CpuLimiter> limiter;  // null: no limits
};

void make_limits(
    Surroundings& surroundings,
    const LaunchOptions& options,
    const std::vector<Quota>& quotas,
    const std::optional<CgroupTree>& tree) {
  options.say(describe(*options.cluster));
  for (const std::string& warning : warnings_about(*options.cluster, machine_cores())) {
    options.say(warning);
  }
  if (has_limited_links(*options.cluster)) {
    std::vector<sim::Link> links;
    for (const sim::WorkerSpec& worker : options.cluster->workers) {
      links.push_back(worker.link);
    }
    surroundings.network.emplace(owner_name(), links);
    options.say("every worker in a network of its own, limited by tc; MPI by TCP");
  }
  surroundings.limiter = make_limiter(options, quotas, tree);
}

void write_notes(
    const Surroundings& surroundings,
    const LaunchOptions& options,
    const std::string& name,
    std::size_t worker,
    const sim::WorkerSpec* spec) {
  const fs::path& folder = surroundings.folder.path();
  Variables variables = spec != nullptr ? variables_of(*spec) : Variables{};
  add_job_variables(variables, folder, name);
  if (surroundings.shared_memory) {
    variables.emplace_back("OMPI_MCA_btl_sm_backing_directory", surroundings.shared_memory->path().string());
  }
  if (options.cluster) {
    variables.emplace_back(io::kClusterVariable, options.cluster->name);
  }
  if (const auto* const groups = dynamic_cast<const CpuGroups*>(surroundings.limiter.get())) {
    variables.emplace_back(kCgroupVariable, groups->folder(worker).string());
  }
  if (surroundings.network) {
    variables.emplace_back(kNetworkVariable, surroundings.network->of_worker(worker));
  }
  variables.emplace_back(kInterfaceVariable, surroundings.network ? kWorkerInterface : "lo");
  const WorkerNotes notes(folder, worker);
  if (spec != nullptr && spec->absent) {
    notes.write_status(kNotThere);
  }
  notes.write_environment(variables);
}

/// Follows a cluster that changes while its job runs.
class Follower {
 public:
  /// All outlive this.
  Follower(const LaunchOptions& options, Surroundings& surroundings, CpuLimiter& limiter)
      : options_(options), surroundings_(surroundings), limiter_(limiter), cluster_(*options.cluster) {}

  /// What holds from now on, if something is new; there is room for those who are to join then.
  std::optional<FollowedCluster> look() {
    std::optional<sim::ClusterSpec> next = lost_ ? std::nullopt : options_.changed_cluster();
    if (!next) {
      return std::nullopt;
    }
    try {
      next = followed_by(cluster_, sim::ClusterSpec(*next));
      check(*next);
    } catch (const std::exception& error) {
      options_.say(std::string("the cluster's file has changed and is left out: ") + error.what());
      return std::nullopt;
    }
    try {
      return follow(*std::move(next));
    } catch (const Error& error) {
      lost_ = true;  // half of the room may be there
      options_.say(std::string("the cluster's file is not followed any more: ") + error.what());
      return std::nullopt;
    }
  }

 private:
  void check(const sim::ClusterSpec& next) const {
    check_cores(next);
    if (count_workers(surroundings_.folder.path()) != cluster_.workers.size()) {
      throw Error("workers were attached to this job, which the file does not know");
    }
  }

  FollowedCluster follow(sim::ClusterSpec next) {
    FollowedCluster followed{.schedule = Schedule(next), .periods = {}};
    for (std::size_t worker = cluster_.workers.size(); worker < next.workers.size(); ++worker) {
      followed.periods.push_back(make_room(worker, next.workers[worker]));
    }
    cluster_ = std::move(next);
    return followed;
  }

  std::int64_t make_room(std::size_t worker, const sim::WorkerSpec& spec) {
    const std::int64_t period = period_for(spec.cores, options_.period_microseconds);
    limiter_.add(quota_for(spec.cores, period));
    if (surroundings_.network) {
      surroundings_.network->add_worker(spec.link);
    }
    write_notes(surroundings_, options_, spec.name, worker, &spec);
    return period;
  }

  const LaunchOptions& options_;
  Surroundings& surroundings_;
  CpuLimiter& limiter_;
  sim::ClusterSpec cluster_;
  bool lost_ = false;
};

std::int64_t workers_at_first(const LaunchOptions& options) {
  return options.cluster ? std::ranges::count(options.cluster->workers, false, &sim::WorkerSpec::absent)
                         : options.workers;
}

std::vector<std::string> job_command(
    const Surroundings& surroundings, const LaunchOptions& options, const Mpirun& mpirun) {
  const fs::path program = options.program.empty() ? fs::read_symlink("/proc/self/exe") : options.program;
  std::vector<std::string> command;
  const auto add = [&command](const std::vector<std::string>& more) {
    command.insert(command.end(), more.begin(), more.end());
  };
  if (surroundings.network) {
    add(command_inside(surroundings.network->hub()));
  }
  add({"env", "TMPDIR=" + surroundings.folder.path().string()});  // a killed one would leave its folder behind
  if (const fs::path library = program.parent_path() / kInterfaceLibrary; fs::exists(library)) {
    const char* const given = std::getenv("LD_PRELOAD");
    add(
        {"LD_PRELOAD=" + library.string() + (given != nullptr ? ":" + std::string(given) : ""),
         std::string(kInterfaceVariable) + "=" + (surroundings.network ? kHubInterface : "lo")});
  } else {
    options.say(library.string() + " is not there, so mpirun listens on all interfaces");
  }
  add(mpirun_command(
      mpirun,
      {.workers = workers_at_first(options),
       .as_root = geteuid() == 0,
       .recovery = options.recovery,
       .hub = surroundings.network ? kHubInterface : ""}));
  add(options.mpirun_options);
  std::vector<std::string> worker{program.string(), "enter", surroundings.folder.path().string(), "--"};
  worker.insert(worker.end(), options.command.begin(), options.command.end());
  write_command(surroundings.folder.path(), worker);
  add(worker);
  return command;
}

void remove_orphans(const std::optional<CgroupTree>& tree) {
  if (tree) {
    remove_orphaned_cgroups(*tree);
  }
  remove_orphaned_networks();
  remove_orphaned_folders();
  remove_orphaned_folders(kSharedMemory);
  remove_orphaned_segments();
}

/// One attempt to run the job, in limits of its own.
JobEnd run_job(
    const LaunchOptions& options,
    const Mpirun& mpirun,
    const HeldSignals& signals,
    const std::optional<CgroupTree>& tree) {
  Plan plan = make_plan(options);
  Surroundings surroundings;
  if (options.cluster) {
    make_limits(surroundings, options, plan.quotas, tree);
  }
  for (std::size_t worker = 0; worker < plan.names.size(); ++worker) {
    const sim::WorkerSpec* const spec = options.cluster ? &options.cluster->workers[worker] : nullptr;
    write_notes(surroundings, options, plan.names[worker], worker, spec);
  }
  std::function<std::optional<FollowedCluster>()> look;
  if (options.cluster && options.changed_cluster) {
    look = [follower = Follower(options, surroundings, *surroundings.limiter)]() mutable { return follower.look(); };
  }
  Supervisor supervisor(
      {.mpirun = start(job_command(surroundings, options, mpirun)),
       .folder = surroundings.folder.path(),
       .names = std::move(plan.names),
       .replacements = options.replacements,
       .start_timeout = options.start_timeout,
       .stop_timeout = options.stop_timeout,
       .starts_again = options.starts_again,
       .schedule = std::move(plan.schedule),
       .periods = std::move(plan.periods),
       .limiter = std::move(surroundings.limiter),
       .look_at_cluster = std::move(look),
       .say = options.say},
      surroundings.step_file,
      signals);
  return supervisor.run();
}

}  // namespace

Throttle parse_throttle(const std::string& name) {
  if (name == "auto") {
    return Throttle::kAuto;
  }
  if (name == "cgroup") {
    return Throttle::kCgroup;
  }
  if (name == "duty-cycle") {
    return Throttle::kDutyCycle;
  }
  refuse("throttle", in_quotes(name), "auto, cgroup, duty-cycle");
}

void LaunchOptions::validate() const {
  require_at_least("workers", workers, 1);
  require(!command.empty(), "command", "empty", "a program and its arguments");
  require(
      period_microseconds >= kShortestQuota && period_microseconds <= kLongestPeriod,
      "period",
      std::to_string(period_microseconds) + " microseconds",
      "1000 to 1000000");
  for (const auto& [name, time] :
       {std::pair{"start-timeout", start_timeout}, std::pair{"stop-timeout", stop_timeout}}) {
    require(time.count() > 0, name, std::to_string(time.count()) + " ms", "more than 0");
  }
  if (!cluster) {
    return;
  }
  cluster->validate();
  require_absent_last(*cluster);
  const auto in_cluster = static_cast<std::int64_t>(cluster->workers.size());
  require(
      workers == in_cluster,
      "workers",
      workers,
      std::to_string(in_cluster) + ", as many as cluster \"" + cluster->name + "\" has");
  check_cores(*cluster);
}

void attach(const std::string& job, std::int64_t workers, const std::function<void(const std::string&)>& say) {
  const std::optional<fs::path> folder = find_job_folder(job);
  if (!folder) {
    refuse("attach", in_quotes(job), "the process number of an 'isochron launch' that runs on this machine");
  }
  for (std::int64_t i = 0; i < workers; ++i) {
    const std::size_t worker = count_workers(*folder);
    Variables variables;
    add_job_variables(variables, *folder, "w" + std::to_string(worker));
    WorkerNotes(*folder, worker).write_environment(variables);
    io::post_join_request(
        *folder, {.command = command_to_join(*folder, worker), .worker = static_cast<std::int64_t>(worker)});
    say("worker w" + std::to_string(worker) + " was asked for; it joins the job between two steps");
  }
}

LaunchEnd launch(const LaunchOptions& requested) {
  requested.validate();
  LaunchOptions options = requested;
  if (!options.say) {
    options.say = [](const std::string&) {};
  }
  const Mpirun mpirun = find_mpirun(options.mpirun);
  const HeldSignals signals;
  const std::optional<CgroupTree> tree = find_cgroup_tree();
  remove_orphans(tree);

  for (int attempt = 1;; ++attempt) {
    const JobEnd end = run_job(options, mpirun, signals, tree);
    if (!end.before_first_step || end.asked_to_end) {
      return {.status = end.status, .asked_to_end = end.asked_to_end};
    }
    if (attempt == kMostStarts) {
      options.say("the job could not be started in " + std::to_string(kMostStarts) + " attempts");
      return {.status = end.status};
    }
    options.say("the job is started again");
  }
}

}  // namespace isochron::emulate
