// Where a run's splits come from: a policy's controller, or an oracle.
//
// The oracle solves every step exactly for the true speeds of that step. It knows cores, interference, drift and the
// level of autocorrelated noise, but neither white noise nor spikes, stalls or kills. The late oracle knows the speeds
// of the step before (right after a join or a kill, of the present): about the best that telemetry could teach.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/core/policy/controller.h"
#include "isochron/sim/fleet.h"

namespace isochron::sim {

[[nodiscard]] bool is_oracle(std::string_view policy);

class Splitter {
 public:
  /// `policy` is a specification for make_policy, "oracle" or "late-oracle".
  Splitter(const std::string& policy, Roster roster, const RateOptions& rate);

  /// For the coming step, to which `fleet` has been advanced; only an oracle looks at it.
  const Decision& decide(const Fleet& fleet);
  void observe(const StepTelemetry& telemetry);
  void change_workers(std::vector<Worker> workers);

 private:
  Roster roster_;
  std::optional<Controller> controller_;  // none: an oracle
  bool late_;
  RateSchedule rate_;
  Decision decision_;  // the oracle's last
  std::vector<Slot> present_;
  std::vector<Slot> past_;  // the truth at the last decision; none if the workers were others
};

}  // namespace isochron::sim
