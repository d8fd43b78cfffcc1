#include "isochron/core/policy/policy.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "isochron/core/allocate/allocate.h"
#include "isochron/core/error.h"

namespace isochron {

std::string_view to_string(Reason reason) {
  switch (reason) {
    case Reason::kStarted:
      return "started";
    case Reason::kRosterChanged:
      return "roster-changed";
    case Reason::kKept:
      return "kept";
    case Reason::kObserving:
      return "observing";
    case Reason::kOutlier:
      return "outlier";
    case Reason::kRebalanced:
      return "rebalanced";
    case Reason::kSpeedChanged:
      return "speed-changed";
    case Reason::kProbing:
      return "probing";
    case Reason::kNoTelemetry:
      return "no-telemetry";
  }
  ISO_CHECK(false, "a reason without a name");
}

void exchange_reason(StateExchange& state, Reason& reason) {
  auto number = static_cast<std::int64_t>(reason);
  state.field("reason", number);
  require(number >= 0 && number <= static_cast<std::int64_t>(kLastReason), "state field reason", number, "a known one");
  reason = static_cast<Reason>(number);
}

Curve Policy::curve(std::size_t /*place*/) const {
  return Curve::linear(1.0);
}

Proposal keep(std::span<const std::int64_t> current, Reason reason, std::string words) {
  return {.batches = {current.begin(), current.end()}, .reason = reason, .words = std::move(words)};
}

std::vector<double> proportional_split(const Roster& roster, std::span<const double> weights) {
  ISO_CHECK(weights.size() == roster.workers.size(), "one weight per worker");
  // Beyond this ratio a worker gets its least batch anyway; the limit keeps the slopes finite.
  constexpr double kLargestRatio = 1e15;
  const double largest = std::ranges::max(weights);
  std::vector<Slot> slots;
  slots.reserve(weights.size());
  for (std::size_t k = 0; k < weights.size(); ++k) {
    const Worker& worker = roster.workers[k];
    ISO_CHECK(weights[k] > 0.0, "a weight is positive");
    slots.push_back(
        {.curve = Curve::linear(std::min(largest / weights[k], kLargestRatio)),
         .min_batch = worker.min_batch,
         .max_batch = worker.max_batch,
         .granularity = worker.granularity});
  }
  const Allocation allocation = allocate(slots, roster.global_batch);
  return {allocation.batch_sizes.begin(), allocation.batch_sizes.end()};
}

std::vector<double> equal_split(const Roster& roster) {
  return proportional_split(roster, std::vector<double>(roster.workers.size(), 1.0));
}

std::vector<double> weights_with_newcomers(const Roster& roster, std::span<const std::int64_t> current) {
  const auto present =
      static_cast<double>(std::ranges::count_if(current, [](std::int64_t batch) { return batch > 0; }));
  const auto sum = static_cast<double>(std::accumulate(current.begin(), current.end(), std::int64_t{0}));
  std::vector<double> weights(current.begin(), current.end());
  std::ranges::replace(weights, 0.0, present > 0.0 ? sum / present : 1.0);
  return proportional_split(roster, weights);
}

}  // namespace isochron
