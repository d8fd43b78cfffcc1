// What the synchronous and the asynchronous simulation share: the state of one run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isochron/sim/fleet.h"
#include "isochron/sim/length_shares.h"
#include "isochron/sim/meter.h"
#include "isochron/sim/schedule.h"
#include "isochron/sim/simulate.h"

namespace isochron::sim {

struct Run {
  /// All arguments must outlive the run.
  Run(const ClusterSpec& cluster_spec,
      const Options& run_options,
      const std::string& policy_name,
      const Recorder& run_recorder);

  /// A member's report of a batch that it computed in `seconds`.
  [[nodiscard]] WorkerTelemetry report(const Member& member, std::int64_t batch, double seconds) const;
  /// Who takes part.
  [[nodiscard]] std::vector<Worker> roster() const;
  /// Hands an event to the recorder, if there is one. Who was never there has no id, and its changes no event.
  void note(const Occurrence& change, std::int64_t step, double seconds) const;

  const ClusterSpec& cluster;
  const Options& options;
  const std::string& policy;
  const Recorder& recorder;
  bool weights_known;
  Fleet fleet;
  Schedule schedule;
  std::optional<LengthShares> lengths;
  Meter meter;
};

void run_bsp(Run& run);
/// ASP and SSP.
void run_async(Run& run);

}  // namespace isochron::sim
