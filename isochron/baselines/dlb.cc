#include "isochron/baselines/dlb.h"

#include <algorithm>
#include <cmath>

namespace isochron {
namespace {

// p_k / t_k up to a common factor; a worker that never reported counts as an average one.
std::vector<double> speeds(std::span<const std::int64_t> batches, std::span<const double> seconds) {
  constexpr double kLargestRatio = 1e12;  // an absurd time moves as much as this, not to infinity
  const double mean = mean_of_known(seconds);
  std::vector<double> result;
  result.reserve(batches.size());
  for (std::size_t k = 0; k < batches.size(); ++k) {
    const double pace =
        std::isnan(seconds[k]) ? 1.0 : std::clamp(mean / seconds[k], 1.0 / kLargestRatio, kLargestRatio);
    result.push_back(static_cast<double>(std::max<std::int64_t>(batches[k], 1)) * pace);
  }
  return result;
}

}  // namespace

void DlbOptions::describe(OptionTable& table) {
  table.integer("interval", interval, 1, kNoLimit, "iterations between two adjustments");
}

Proposal DlbPolicy::start(const Roster& roster, std::span<const std::int64_t> current) {
  iterations_ = 0;
  times_.reset(roster.workers.size());
  if (current.empty()) {
    return {.batches = equal_split(roster), .reason = Reason::kStarted, .words = "equal shares"};
  }
  return {
      .batches = weights_with_newcomers(roster, current),
      .reason = Reason::kRosterChanged,
      .words = "shares as before, an average one for newcomers"};
}

Proposal DlbPolicy::observe(
    const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) {
  ++iterations_;
  times_.add(readings);
  if (iterations_ < options_.interval) {
    return keep(current, Reason::kObserving, "measuring until the interval ends");
  }
  iterations_ = 0;
  if (!times_.any_known()) {
    return keep(current, Reason::kNoTelemetry, "no worker has reported a time in this interval");
  }
  const std::vector<double> weights = speeds(current, times_.seconds());
  times_.reset(current.size());
  return {
      .batches = proportional_split(roster, weights),
      .reason = Reason::kRebalanced,
      .words = "shares in proportion to share over mean time"};
}

void DlbPolicy::exchange(StateExchange& state) {
  state.field("iterations", iterations_);
  state.part("times", times_);
}

}  // namespace isochron
