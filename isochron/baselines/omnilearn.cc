#include "isochron/baselines/omnilearn.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "isochron/core/policy/per_worker.h"
#include "isochron/core/policy/static.h"

namespace isochron {

void OmniLearnOptions::describe(OptionTable& table) {
  table.choice("variant", variant, {"paper", "code"}, "the published law, or its reference code of 2025");
  if (variant == "code") {
    dead_band = 0.2;
    b_min = 16;
    b_max = 96;
  }
  table.choice("start", start, {"uniform", "static"}, "first split: equal, or by the workers' weights");
  table.choice("sum", sum, {"additive", "scaled"}, "paper: how the global batch is restored after an adjustment");
  table.number("dead-band", dead_band, 0.0, 1.0, "relative change of a batch below which it stays (code: 0.2)");
  table.number("ewma", ewma, 0.001, 1.0, "paper: weight of the newest time");
  table.number("drop", drop, 0.0, 1.0, "paper: loss of throughput after growing that sets a ceiling; 1: never");
  table.integer("b-min", b_min, 0, kNoLimit, "least batch of every worker (code: 16)");
  table.integer("b-max", b_max, 0, kNoLimit, "largest batch of every worker; 0: no limit (code: 96)");
  table.integer("interval", interval, 1, kNoLimit, "code: iterations between two adjustments");
}

OmniLearnPolicy::OmniLearnPolicy(OmniLearnOptions options)
    : options_(std::move(options)), times_(is_code() ? SmoothedTimes::kPlainMean : options_.ewma) {
}

Proposal OmniLearnPolicy::start(const Roster& roster, std::span<const std::int64_t> current) {
  const std::size_t count = roster.workers.size();
  ceilings_ = Succession(ids_, roster).carry_over(ceilings_, std::int64_t{0});
  ids_ = ids_of(roster);
  iterations_ = 0;
  times_.reset(count);
  before_.assign(count, 0);
  throughput_before_.assign(count, kUnknown);
  if (!current.empty()) {
    return {
        .batches = weights_with_newcomers(roster, current),
        .reason = Reason::kRosterChanged,
        .words = "shares as before, an average one for newcomers"};
  }
  const bool by_weight = options_.start == "static";
  return {
      .batches = by_weight ? proportional_split(roster, nominal_weights(roster)) : equal_split(roster),
      .reason = Reason::kStarted,
      .words = by_weight ? "shares in proportion to the workers' weights" : "equal shares"};
}

Proposal OmniLearnPolicy::observe(
    const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) {
  ++iterations_;
  times_.add(readings);
  if (!is_code()) {
    limit_losers(readings, current);
  }
  if (!times_.any_known()) {
    return keep(current, Reason::kNoTelemetry, "no worker has reported a time since the last adjustment");
  }
  return is_code() ? follow_code(roster, current) : follow_paper(roster, current);
}

// Judged once, by the first reading after an adjustment: later losses are the machine's, not the batch's.
void OmniLearnPolicy::limit_losers(std::span<const Reading> readings, std::span<const std::int64_t> current) {
  for (std::size_t k = 0; k < readings.size(); ++k) {
    if (!readings[k].valid || before_[k] == 0) {
      continue;
    }
    const double throughput = static_cast<double>(current[k]) / readings[k].seconds;
    if (current[k] > before_[k] && throughput < (1.0 - options_.drop) * throughput_before_[k]) {
      ceilings_[k] = before_[k];
    }
    before_[k] = 0;
  }
}

Proposal OmniLearnPolicy::follow_paper(const Roster& roster, std::span<const std::int64_t> current) {
  std::vector<double> batches = omnilearn_law(current, times_.seconds());
  std::vector<BatchBounds> bounds;
  bounds.reserve(batches.size());
  double largest_change = 0.0;
  for (std::size_t k = 0; k < batches.size(); ++k) {
    bounds.push_back(bounds_of(roster, k));
    batches[k] = clamped(batches[k], bounds[k]);
    const auto old = static_cast<double>(current[k]);
    largest_change = std::max(largest_change, std::abs(batches[k] - old) / std::max(old, 1.0));
  }
  if (largest_change <= options_.dead_band) {
    return keep(current, Reason::kKept, "every change is within the dead band");
  }
  const SumRule rule = options_.sum == "scaled" ? SumRule::kScaled : SumRule::kAdditive;
  return adjust(restore_sum(batches, bounds, roster.global_batch, rule), current);
}

Proposal OmniLearnPolicy::follow_code(const Roster& roster, std::span<const std::int64_t> current) {
  if (iterations_ < options_.interval) {
    return keep(current, Reason::kObserving, "measuring until the interval ends");
  }
  const std::int64_t high = options_.b_max == 0 ? kNoLimit : options_.b_max;
  const BatchBounds bounds{.min_batch = std::min(options_.b_min, high), .max_batch = high};
  return adjust(
      omnilearn_code_law(current, times_.seconds(), roster.global_batch, options_.dead_band, bounds), current);
}

// Starts a new series of measurements and remembers what the old split achieved.
Proposal OmniLearnPolicy::adjust(std::vector<double> batches, std::span<const std::int64_t> current) {
  for (std::size_t k = 0; k < current.size(); ++k) {
    throughput_before_[k] = static_cast<double>(current[k]) / times_.seconds()[k];
  }
  before_.assign(current.begin(), current.end());
  times_.reset(current.size());
  iterations_ = 0;
  return {
      .batches = std::move(batches),
      .reason = Reason::kRebalanced,
      .words = "batches scaled by mean time over own time"};
}

BatchBounds OmniLearnPolicy::bounds_of(const Roster& roster, std::size_t place) const {
  const Worker& worker = roster.workers[place];
  // Nobody can take more than B: a bound that does not bind leaves the law as it was published.
  std::int64_t high = worker.max_batch < roster.global_batch ? worker.max_batch : kNoLimit;
  for (const std::int64_t limit : {options_.b_max, ceilings_[place]}) {
    high = limit == 0 ? high : std::min(high, limit);
  }
  const std::int64_t low = std::min(std::max(options_.b_min, worker.min_batch), high);
  return {.min_batch = low, .max_batch = high};
}

void OmniLearnPolicy::exchange(StateExchange& state) {
  state.field("iterations", iterations_);
  state.part("times", times_);
  state.fixed_list("before", before_);
  state.fixed_list("throughput_before", throughput_before_);
  state.fixed_list("ceilings", ceilings_);
}

}  // namespace isochron
