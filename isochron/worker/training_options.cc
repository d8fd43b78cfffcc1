#include "isochron/worker/training_options.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "isochron/cli/options.h"
#include "isochron/io/worker_variables.h"
#include "isochron/worker/fence.h"

namespace isochron::worker {
namespace {

// In the order of help.
constexpr std::string_view kGroups[] = {
    "What to train",
    "How the batch is split",
    "How workers keep in step",
    "How it learns",
    "This worker",
    "Exchange of gradients",
    "When something fails",
    "Checkpoints"};

/// Sets `value` to what the launcher says, unless the command line does.
void inherit(const CLI::App& command, const std::string& option, const char* variable, std::int64_t& value) {
  if (command.count(option) == 0) {
    value = io::whole_variable(variable, 0, cli::kMostCount).value_or(value);
  }
}

void inherit_from_launcher(const CLI::App& command, JobOptions& job, bool nominal_weight) {
  inherit(command, "--min-batch", io::kMinBatchVariable, job.min_batch);
  inherit(command, "--max-batch", io::kMaxBatchVariable, job.max_batch);
  inherit(command, "--granularity", io::kGranularityVariable, job.granularity);
  if (const char* const name = std::getenv(io::kWorkerNameVariable)) {
    job.name = name;
  }
  if (const char* const kind = std::getenv(io::kWorkerKindVariable); kind != nullptr && command.count("--kind") == 0) {
    job.kind = kind;
  }
  if (nominal_weight) {
    job.weight = io::positive_variable(io::kWorkerCoresVariable).value_or(job.weight);
  }
}

}  // namespace

void TrainingOptions::add_options(CLI::App& command) {
  options.job.global_batch = 128;
  std::vector<Option> all = train::run_options(options);
  for (JobOption& option : job_options(options.job)) {
    if (option.is(kCommandLine)) {
      all.push_back(std::move(option));
    }
  }
  for (const std::string_view group : kGroups) {
    for (const Option& option : all) {
      if (option.group == group) {
        cli::add_option(command, option);
      }
    }
  }
  command.add_flag("--nominal-weight", nominal_weight, "The weight is the cores that the launcher gave it")
      ->group("This worker");
  command.add_option("--fence", fence, "Kills process {pid} on {host}, where this host cannot itself")
      ->type_name("COMMAND")
      ->group("When something fails");
}

train::Options TrainingOptions::checked(const CLI::App& command) const {
  train::Options checked = options;
  JobOptions& job = checked.job;
  if (!fence.empty()) {
    job.fence = [command = fence, time = std::min(kTimeToFence, job.patience() / 2)](const Peer& peer) {
      return run_fence(command, peer, time);
    };
  }
  if (job.rate.rule == RateRule::kNone) {  // a rule knows how long a warm-up is at this batch
    checked.warmup = static_cast<std::int64_t>(std::exchange(job.rate.warmup_steps, 0.0));
  }
  inherit_from_launcher(command, job, nominal_weight);
  checked.validate();
  return checked;
}

}  // namespace isochron::worker
