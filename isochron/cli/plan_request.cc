#include "isochron/cli/plan_request.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "isochron/cli/cluster_option.h"
#include "isochron/cli/options.h"
#include "isochron/core/error.h"
#include "isochron/core/trace/json.h"
#include "isochron/emulate/machine.h"
#include "isochron/io/machines_file.h"
#include "isochron/io/profile_file.h"
#include "isochron/view/frame.h"
#include "isochron/view/run_file.h"

namespace isochron::cli {
namespace {

std::optional<std::int64_t> parse_batch(const std::string& text) {
  if (text == "search") {
    return std::nullopt;
  }
  try {
    return parse_whole(text, 1, kMostCount);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(error.what() + std::string(", or search"));
  }
}

/// What `read` gives; a file that cannot be read is bad input.
template <class Read>
auto read_file(const std::string& option, const std::string& path, Read read) {
  try {
    return read();
  } catch (const Error& error) {
    throw std::invalid_argument(
        option + " is '" + path + "'; permitted: a file that can be read (" + error.what() + ")");
  }
}

plan::Profile model_profile(const PlanRequest& request) {
  if (request.model_profile.empty()) {
    throw std::invalid_argument("--model-profile is not given; permitted: a file that 'isochron profile' wrote");
  }
  return read_file(
      "--model-profile", request.model_profile, [&] { return io::read_profile_file(request.model_profile); });
}

/// Built-in clusters are scaled to this machine, as 'launch' and 'compare' do.
std::vector<plan::Group> cluster_machines(const std::string& cluster, const plan::Profile& profile) {
  const sim::ClusterSpec loaded = load_cluster(cluster, 1);
  try {
    return plan::emulated_machines(
        is_cluster_file(cluster) || !loaded.changes.empty() ? loaded
                                                            : emulate::fit_to_machine(loaded, emulate::machine_cores()),
        profile);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("--cluster: " + std::string(error.what()));
  }
}

std::vector<plan::Group> machines_of(const PlanRequest& request, const plan::Profile& profile) {
  if (request.machines.empty() == request.cluster.empty()) {
    throw std::invalid_argument(
        std::string(request.machines.empty() ? "neither" : "each") +
        " of --machines and --cluster is given; permitted: one of them");
  }
  std::vector<plan::Group> groups = request.machines.empty()
                                        ? cluster_machines(request.cluster, profile)
                                        : read_file("--machines", request.machines, [&] {
                                            return io::read_machines_file(request.machines, profile);
                                          });
  for (plan::Group& group : groups) {
    group.machine.noise = request.noise.value_or(group.machine.noise);
  }
  return groups;
}

/// The workers of a run, with what its log says of them. What a step takes beyond computing stays what it was.
std::vector<plan::Group> run_machines(const view::RunView& view) {
  const ShareGain& known = view.gain();
  const std::vector<Pace> paces = known.paces();
  std::vector<plan::Group> groups;
  for (std::size_t k = 0; k < paces.size(); ++k) {
    const WorkerId id = known.workers()[k].id;
    const auto totals = std::ranges::find(view.workers(), id, &view::WorkerTotals::id);
    groups.push_back(
        {.machine = {
             .name = totals == view.workers().end() ? "worker " + std::to_string(id) : totals->name,
             .curve = paces[k].slot.curve,
             .update_seconds = known.rest_seconds(),
             .noise = paces[k].noise,
             .measured = known.largest_batch(id),
             .link = {}}});
  }
  return groups;
}

PlanTask task_of_run(const PlanRequest& request) {
  if (!request.machines.empty() || !request.cluster.empty() || !request.model_profile.empty()) {
    throw std::invalid_argument("--run is given with other machines or a profile; permitted: --run alone");
  }
  view::RunFile run(request.run);
  run.poll();
  PlanTask task;
  if (run.view()) {
    task.groups = run_machines(*run.view());
    task.model = run.view()->header().model;
    task.dataset = run.view()->header().dataset;
    task.dataset_size = request.dataset_size > 0 ? request.dataset_size : run.view()->header().samples_per_epoch;
  }
  if (task.groups.empty()) {
    throw std::invalid_argument(
        "--run is '" + request.run + "'; permitted: a run log with " + std::to_string(ShareGain::kFewest) +
        " steps or more of workers whose times follow their batches");
  }
  for (plan::Group& group : task.groups) {
    group.machine.noise = request.noise.value_or(group.machine.noise);
  }
  task.title = std::filesystem::path(request.run).stem().string();
  task.exchange = {.overlap = request.overlap};
  task.global_batch = request.global_batch;
  task.epochs = request.epochs;
  return task;
}

PlanTask task_of_machines(const PlanRequest& request) {
  const plan::Profile profile = model_profile(request);
  PlanTask task;
  task.title = request.machines.empty() ? request.cluster : std::filesystem::path(request.machines).stem().string();
  task.model = profile.model;
  task.dataset = profile.dataset;
  task.groups = machines_of(request, profile);
  task.exchange = {.gradient_bytes = profile.parameter_bytes, .overlap = request.overlap};
  task.global_batch = request.global_batch;
  task.epochs = request.epochs;
  task.dataset_size = request.dataset_size > 0 ? request.dataset_size : profile.dataset_size;
  return task;
}

/// Names that came from files, which are shown on terminals.
void make_printable(PlanTask& task) {
  for (std::string* const text : {&task.title, &task.model, &task.dataset}) {
    *text = view::printable(*text);
  }
  for (plan::Group& group : task.groups) {
    group.machine.name = view::printable(group.machine.name);
  }
}

}  // namespace

void PlanRequest::add_options(CLI::App& command) {
  const std::string what = "What there is";
  command.add_option("--machines", machines, "The machines and their prices")->type_name("FILE.toml")->group(what);
  command.add_option("--cluster", cluster, "Instead: an emulated cluster, cores being speeds")
      ->type_name("NAME|FILE.toml")
      ->group(what);
  command.add_option("--model-profile", model_profile, "What 'isochron profile' wrote; machines may have their own")
      ->type_name("FILE.json")
      ->group(what);
  command.add_option("--run", run, "Instead of all these: the workers of a run log, with the curves it has learned")
      ->type_name("RUN.jsonl")
      ->group(what);
  const std::string job = "What is to be done";
  add_value(
      command,
      "--global-batch",
      "N|search",
      "Samples per step; search: the smallest within 5 % of the highest rate",
      [this](const std::string& text) { global_batch = parse_batch(text); })
      ->default_str("search")
      ->group(job);
  add_whole(command, "--epochs", epochs, 1, kMostCount, "Whose time is asked for")->group(job);
  add_whole(command, "--dataset-size", dataset_size, 0, kMostCount, "Samples of an epoch; 0: as the profile says")
      ->group(job);
  const std::string model = "What is assumed";
  add_number(command, "--overlap", overlap, "How much of the exchange that backward could hide is hidden, 0 to 1")
      ->group(model);
  const auto set_noise = [this](const std::string& text) { noise = parse_noise(text); };
  add_value(command, "--noise", "SIGMA", "Standard deviation of the logarithm of step times; beats files", set_noise)
      ->group(model);
  samples.add_options(command);
  output.add_option(command);
}

PlanTask checked(const PlanRequest& request) {
  if (request.overlap > 1.0) {
    throw std::invalid_argument("--overlap is " + json_number(request.overlap) + "; permitted: 0 to 1");
  }
  PlanTask task = request.run.empty() ? task_of_machines(request) : task_of_run(request);
  task.lengths = request.samples.checked();
  make_printable(task);
  return task;
}

}  // namespace isochron::cli
