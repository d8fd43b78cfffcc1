#include "isochron/core/policy/static.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace isochron {

void StaticOptions::describe(OptionTable& table) {
  table.numbers("weights", weights, "relative speed of every worker, in order; none: the workers' own weights");
}

StaticPolicy::StaticPolicy(StaticOptions options) : options_(std::move(options)) {
}

Proposal StaticPolicy::start(const Roster& roster, std::span<const std::int64_t> current) {
  if (!options_.weights.empty() && options_.weights.size() != roster.workers.size()) {
    throw std::invalid_argument(
        "policy static: weights has " + std::to_string(options_.weights.size()) +
        " numbers; permitted: one for each of the " + std::to_string(roster.workers.size()) + " workers");
  }
  return {
      .batches = proportional_split(roster, options_.weights.empty() ? nominal_weights(roster) : options_.weights),
      .reason = current.empty() ? Reason::kStarted : Reason::kRosterChanged,
      .words = "shares in proportion to the given weights"};
}

Proposal StaticPolicy::observe(
    const Roster& /*roster*/, std::span<const Reading> /*readings*/, std::span<const std::int64_t> current) {
  return keep(current, Reason::kKept, "given weights");
}

std::vector<double> nominal_weights(const Roster& roster) {
  std::vector<double> weights;
  weights.reserve(roster.workers.size());
  for (const Worker& worker : roster.workers) {
    if (worker.weight <= 0.0) {
      throw std::invalid_argument(
          "worker " + std::to_string(worker.id) +
          ": weight is 0; permitted: a positive number, since a static split needs the weight of every worker");
    }
    weights.push_back(worker.weight);
  }
  return weights;
}

}  // namespace isochron
