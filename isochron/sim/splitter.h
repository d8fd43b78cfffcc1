// Where a run's splits come from: a policy's controller, or the oracle.
//
// The oracle solves every step exactly for the true speeds of that step. It knows cores, interference, drift and the
// level of autocorrelated noise, but neither white noise nor spikes, stalls or kills.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "isochron/core/policy/controller.h"
#include "isochron/sim/fleet.h"

namespace isochron::sim {

class Splitter {
 public:
  /// `policy` is a specification for make_policy, or "oracle".
  Splitter(const std::string& policy, Roster roster, const RateOptions& rate);

  /// For the coming step, to which `fleet` has been advanced; only the oracle looks at it.
  const Decision& decide(const Fleet& fleet);
  void observe(const StepTelemetry& telemetry);
  void change_workers(std::vector<Worker> workers);

 private:
  Roster roster_;
  std::optional<Controller> controller_;  // none: the oracle
  RateSchedule rate_;
  Decision decision_;  // the oracle's last
  std::vector<Slot> slots_;
};

}  // namespace isochron::sim
