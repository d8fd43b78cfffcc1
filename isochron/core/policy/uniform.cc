#include "isochron/core/policy/uniform.h"

namespace isochron {

Proposal UniformPolicy::start(const Roster& roster, std::span<const std::int64_t> current) {
  return {
      .batches = equal_split(roster),
      .reason = current.empty() ? Reason::kStarted : Reason::kRosterChanged,
      .words = "equal shares"};
}

Proposal UniformPolicy::observe(
    const Roster& /*roster*/, std::span<const Reading> /*readings*/, std::span<const std::int64_t> current) {
  return keep(current, Reason::kKept, "equal shares");
}

}  // namespace isochron
