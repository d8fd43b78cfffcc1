#include "isochron/sim/run.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "isochron/core/options.h"
#include "isochron/core/replica/rounds.h"

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
    const std::string& policy,
    const Recorder& run_recorder)
    : cluster(cluster_spec),
      options(run_options),
      recorder(run_recorder),
      weights_known(run_options.nominal_weights || needs_weights(policy)),
      fleet(cluster, options.seed),
      schedule(cluster),
      lengths(
          options.lengths ? std::optional<LengthShares>(
                                std::in_place, *options.lengths, options.global_batch, options.steps, options.seed)
                          : std::nullopt),
      by_cost(options.lengths && options.lengths->by_cost && !is_oracle(policy)),
      units_per_sample(
          by_cost                                              ? WorkShares::kUnitsPerSample
          : options.sync == Sync::kLocal && !is_oracle(policy) ? Rounds::kUnitsPerSample
                                                               : 1),
      splitter(policy, roster(), options.rate),
      meter(options.global_batch, units_per_sample) {
}

Roster Run::roster() const {
  Roster roster{.workers = fleet.roster(weights_known), .global_batch = options.global_batch};
  if (!options.former.empty()) {
    take_over(options.former, roster.workers);
  }
  if (units_per_sample > 1) {
    roster.units_per_sample = units_per_sample;
    roster.global_batch *= roster.units_per_sample;
    std::ranges::transform(roster.workers, roster.workers.begin(), by_cost ? WorkShares::in_units : Rounds::in_units);
  }
  return roster;
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

void Run::change_workers() {
  splitter.change_workers(roster().workers);
}

void Run::note(const Occurrence& change, std::int64_t step, double seconds) const {
  if (!recorder.event) {
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
       .worker = fleet.id(change.worker),
       .words = words.str()});
}

}  // namespace isochron::sim
