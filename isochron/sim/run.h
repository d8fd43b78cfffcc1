// What the synchronous and the asynchronous simulation share: the state of one run.
#pragma once

#include <optional>
#include <string>

#include "isochron/sim/fleet.h"
#include "isochron/sim/length_shares.h"
#include "isochron/sim/meter.h"
#include "isochron/sim/schedule.h"
#include "isochron/sim/simulate.h"
#include "isochron/sim/splitter.h"

namespace isochron::sim {

struct Run {
  /// All arguments must outlive the run.
  Run(const ClusterSpec& cluster_spec,
      const Options& run_options,
      const std::string& policy,
      const Recorder& run_recorder);

  /// A member's report of a batch that it computed in `seconds`.
  [[nodiscard]] WorkerTelemetry report(const Member& member, std::int64_t batch, double seconds) const;
  /// Who takes part, with bounds in what shares are counted in.
  [[nodiscard]] Roster roster() const;
  /// Tells the policy who is there now.
  void change_workers();
  /// Hands an event to the recorder, if there is one.
  void note(const Occurrence& change, std::int64_t step, double seconds) const;

  const ClusterSpec& cluster;
  const Options& options;
  const Recorder& recorder;
  bool weights_known;
  Fleet fleet;
  Schedule schedule;
  std::optional<LengthShares> lengths;
  bool by_cost;                   // the policy sees units of work
  std::int64_t units_per_sample;  // more than 1: what it sees, by cost and in rounds
  Splitter splitter;
  Meter meter;
};

void run_bsp(Run& run);
/// ASP and SSP.
void run_async(Run& run);

}  // namespace isochron::sim
