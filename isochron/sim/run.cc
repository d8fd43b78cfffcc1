#include "isochron/sim/run.h"

#include <optional>
#include <sstream>
#include <string_view>

#include "isochron/core/options.h"
#include "isochron/sim/splitter.h"

namespace isochron::sim {
namespace {

/// The static policy is the one that is told the speeds beforehand.
bool needs_weights(const std::string& policy) {
  return !is_oracle(policy) && Specification::parse("policy", policy).name == "static";
}

}  // namespace

Run::Run(
    const ClusterSpec& cluster_spec,
    const Options& run_options,
    const std::string& policy_name,
    const Recorder& run_recorder)
    : cluster(cluster_spec),
      options(run_options),
      policy(policy_name),
      recorder(run_recorder),
      weights_known(options.nominal_weights || needs_weights(policy)),
      fleet(cluster, options.seed),
      schedule(cluster),
      lengths(
          options.lengths ? std::optional<LengthShares>(
                                std::in_place, *options.lengths, options.global_batch, options.steps, options.seed)
                          : std::nullopt),
      meter(options.global_batch) {
}

std::vector<Worker> Run::roster() const {
  std::vector<Worker> workers = fleet.roster(weights_known);
  if (!options.former.empty()) {
    take_over(options.former, workers);
  }
  return workers;
}

WorkerTelemetry Run::report(const Member& member, std::int64_t batch, double seconds) const {
  const std::int64_t ceiling = cluster.workers[member.index].max_batch;
  return {
      .worker = member.id,
      .batch = batch,
      .seconds = seconds,
      .usage =
          {.cpu = fleet.cpu_share(member.index),
           .memory = ceiling == kNoLimit ? kUnknown : static_cast<double>(batch) / static_cast<double>(ceiling)},
      .cold = fleet.is_cold(member.index, batch)};
}

void Run::note(const Occurrence& change, std::int64_t step, double seconds) const {
  const std::optional<WorkerId> id = fleet.id(change.worker);
  if (!recorder.event || !id) {
    return;
  }
  std::ostringstream words;
  words << cluster.workers[change.worker].name;
  if (change.cores) {
    words << ": " << *change.cores << " cores";
  }
  recorder.event(
      {.step = step,
       .seconds = seconds,
       .event = std::string(to_string(change.event)),
       .worker = *id,
       .words = words.str()});
}

}  // namespace isochron::sim
