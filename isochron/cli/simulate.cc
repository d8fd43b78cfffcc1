#include <cstddef>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "isochron/cli/commands.h"
#include "isochron/cli/recorder.h"
#include "isochron/cli/results.h"
#include "isochron/cli/simulate_request.h"
#include "isochron/sim/fleet.h"

namespace isochron::cli {
namespace {

RunHeader header_of(const sim::ClusterSpec& cluster, const sim::Options& options, const std::string& policy) {
  RunHeader header;
  header.program = "simulate";
  header.version = ISOCHRON_VERSION;
  header.policy = policy;
  header.cluster = cluster.name;
  header.global_batch = options.global_batch;
  header.seed = options.seed;
  header.samples_per_epoch = options.samples();
  header.total_steps = options.sync == Sync::kBsp ? options.steps : 0;
  header.sync = options.sync == Sync::kLocal ? to_string(options.sync) : "";
  header.workers = members_of(sim::Fleet(cluster, options.seed).roster(false));
  return header;
}

/// A policy, how its workers wait for one another, and how the samples of its steps are dealt.
struct Task {
  std::string policy;
  std::string label;
  sim::Options options;
};

std::vector<Task> tasks_of_modes(
    const std::vector<Sync>& syncs, const std::vector<std::string>& policies, const sim::Options& options) {
  std::vector<Task> tasks;
  for (const Sync sync : syncs) {
    for (const std::string& policy : policies) {
      tasks.push_back({.policy = policy, .label = policy + " " + std::string(to_string(sync)), .options = options});
      tasks.back().options.sync = sync;
      if (sync != Sync::kSsp) {
        tasks.back().options.staleness = 0;
      }
    }
  }
  return tasks;
}

std::vector<Task> tasks_of(
    const SimulateRequest& request, const std::vector<std::string>& policies, const sim::Options& options) {
  const std::vector<Sync> syncs = request.checked_syncs();
  if (syncs.size() > 1) {
    return tasks_of_modes(syncs, policies, options);
  }
  std::vector<Task> tasks;
  for (const std::string& policy : policies) {
    tasks.push_back({.policy = policy, .label = policy, .options = options});
    if (options.lengths && request.deal == "both") {
      tasks.push_back({.policy = policy, .label = policy + " by count", .options = options});
      tasks.back().options.lengths->by_cost = false;
    }
  }
  return tasks;
}

/// One per policy, all opened before the first run; none if nothing is to be recorded.
std::vector<std::unique_ptr<Recorder>> open_recorders(
    const SimulateRequest& request, const sim::ClusterSpec& cluster, const std::vector<Task>& tasks) {
  std::vector<std::unique_ptr<Recorder>> recorders;
  if (request.log.empty() && request.trace.empty()) {
    return recorders;
  }
  for (const Task& task : tasks) {
    const auto name = [&](const std::string& file) {
      return file.empty() || tasks.size() == 1 ? file : name_for_policy(file, task.label);
    };
    recorders.push_back(std::make_unique<Recorder>(
        header_of(cluster, task.options, task.label), name(request.log), name(request.trace)));
  }
  return recorders;
}

nlohmann::ordered_json details_of(
    const SimulateRequest& request, const sim::ClusterSpec& cluster, const sim::Options& options) {
  nlohmann::ordered_json details{
      {"cluster", cluster.name},
      {"workers", cluster.workers.size()},
      {"global_batch", options.global_batch},
      {"steps", options.steps},
      {"seed", options.seed},
      {"sync", request.sync}};
  if (options.lengths) {
    details["lengths"] = request.samples.lengths;
    details["cost"] = request.samples.cost;
    details["collate"] = request.samples.collate;
  }
  return details;
}

void print_results(
    const SimulateRequest& request,
    const sim::ClusterSpec& cluster,
    const sim::Options& options,
    const std::vector<sim::Result>& results) {
  const std::size_t modes = request.checked_syncs().size();
  std::cout << cluster.name << ": " << cluster.workers.size() << " workers, global batch " << options.global_batch
            << ", " << options.steps << " steps, " << request.sync << ", seed " << options.seed
            << (options.lengths ? ", " + request.samples.collate + " samples of unequal length" : "") << "\n\n"
            << (modes > 1 ? modes_table(results) : results_table(results, options.sync)) << '\n'
            << (modes > 1 ? modes_sentence(results, results.size() / modes) : gain_sentence(results)) << '\n';
}

sim::Result simulate(
    const sim::ClusterSpec& cluster, const sim::Options& options, const std::string& policy, Recorder* recorder) {
  if (recorder == nullptr) {
    return sim::simulate(cluster, options, policy);
  }
  const auto record = [recorder](const auto& what) { recorder->record(what); };
  return sim::simulate(cluster, options, policy, {.step = record, .update = record, .event = record});
}

void run_simulate(SimulateRequest& request) {
  const std::vector<std::string> policies = request.checked_policies();
  const sim::Options options = request.checked_options();
  const sim::ClusterSpec cluster = request.checked_cluster();
  check_distinct_outputs({request.output.target(), request.log, request.trace});
  request.output.open();
  const std::vector<Task> tasks = tasks_of(request, policies, options);
  const auto recorders = open_recorders(request, cluster, tasks);

  sim::Options best = options;
  if (best.lengths) {
    best.lengths->by_cost = true;
  }
  std::map<Sync, sim::Result> oracles;
  for (const Sync sync : request.checked_syncs()) {
    best.sync = sync;
    oracles.emplace(sync, sim::simulate(cluster, best, "oracle"));
  }
  std::vector<sim::Result> results;
  nlohmann::ordered_json documents = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    Recorder* const recorder = recorders.empty() ? nullptr : recorders[i].get();
    results.push_back(simulate(cluster, tasks[i].options, tasks[i].policy, recorder));
    results.back().policy = tasks[i].label;
    results.back().time_over_oracle = sim::time_over(results.back(), oracles.at(tasks[i].options.sync));
    documents.push_back(to_json(results.back(), tasks[i].options.sync));
  }
  for (const auto& recorder : recorders) {
    recorder->commit();
  }
  if (!request.output.takes_standard_output()) {
    print_results(request, cluster, options, results);
  }
  request.output.write("simulate", details_of(request, cluster, options), documents);
}

}  // namespace

void add_simulate(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("simulate", "Compare policies on a cluster in simulated time");
  const auto request = std::make_shared<SimulateRequest>();
  request->add_options(*command);
  command->footer(
      "Examples:\n"
      "  isochron simulate --cluster hl8 --policy uniform,isochron\n"
      "  isochron simulate --cluster mine.toml --policy omnilearn:dead-band=0.1,ewma=0.2,isochron --json results.json\n"
      "  isochron simulate --cluster dynamic --noise 0.05 --policy isochron --trace run.json   # open in "
      "ui.perfetto.dev\n"
      "  isochron simulate --sync all --gradient-bytes 45mbyte --link-rate 1gbit --policy uniform,isochron\n"
      "  isochron simulate --cluster mixed16 --global-batch 256 --lengths lognormal --deal both --policy "
      "uniform,isochron");
  command->final_callback([request] { run_simulate(*request); });
}

}  // namespace isochron::cli
