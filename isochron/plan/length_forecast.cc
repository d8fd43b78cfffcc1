#include "isochron/plan/length_forecast.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "isochron/core/deal/deal.h"

namespace isochron::plan {
namespace {

constexpr std::int64_t kSteps = 32;
constexpr std::uint64_t kSeed = 1;

using Works = std::span<const double>;

double sum_of(Works works) {
  return std::accumulate(works.begin(), works.end(), 0.0);
}

double total_of(Works works, Collation collation) {
  if (works.empty() || collation == Collation::kPacked) {
    return sum_of(works);
  }
  return static_cast<double>(works.size()) * std::ranges::max(works);
}

std::vector<DealSlot> slots_of(const std::vector<Group>& groups) {
  std::vector<DealSlot> slots;
  for (const Group& group : groups) {
    const Machine& machine = group.machine;
    const DealSlot slot{.curve = machine.curve, .min_samples = machine.min_batch, .max_samples = machine.max_batch};
    slots.insert(slots.end(), static_cast<std::size_t>(group.count), slot);
  }
  return slots;
}

/// Means over steps.
class Times {
 public:
  void add(std::span<const DealSlot> slots, std::span<const double> works, double drawn) {
    double longest = 0.0;
    for (std::size_t k = 0; k < slots.size(); ++k) {
      longest = std::max(longest, works[k] > 0.0 ? slots[k].curve.seconds(works[k]) : 0.0);
      computed_ += works[k];
    }
    seconds_ += longest / static_cast<double>(kSteps);
    drawn_ += drawn;
  }

  /// For a step that computes `alike` seconds, noise aside, where all samples cost the same.
  [[nodiscard]] LengthForecast::Deal deal(const Step& step, double alike) const {
    const double seconds = step.seconds() + step.compute_seconds * (seconds_ / alike - 1.0);
    return {
        .step_seconds = seconds,
        .samples_per_second = static_cast<double>(step.global_batch) / seconds,
        .padding = std::max(0.0, 1.0 - drawn_ / computed_)};
  }

 private:
  double seconds_ = 0.0;
  double computed_ = 0.0;
  double drawn_ = 0.0;
};

double alike_seconds(std::span<const DealSlot> slots, const Step& step) {
  double longest = 0.0;
  for (std::size_t k = 0; k < slots.size(); ++k) {
    const auto batch = static_cast<double>(step.batch_sizes[k]);
    longest = std::max(longest, batch > 0.0 ? slots[k].curve.seconds(batch) : 0.0);
  }
  return longest;
}

std::vector<double> by_count(Works works, const Step& step, Collation collation) {
  std::vector<double> totals;
  for (const std::int64_t batch : step.batch_sizes) {
    totals.push_back(total_of(works.first(static_cast<std::size_t>(batch)), collation));
    works = works.subspan(static_cast<std::size_t>(batch));
  }
  return totals;
}

/// In multiples of their mean.
std::vector<double> drawn_works(const sim::Lengths& lengths, std::int64_t samples) {
  const SampleWorks drawn = lengths.works(samples, kSeed);
  std::vector<double> works(drawn.works.begin(), drawn.works.end());
  const double mean = sum_of(works) / static_cast<double>(samples);
  for (double& work : works) {
    work = mean > 0.0 ? work / mean : 1.0;
  }
  return works;
}

}  // namespace

LengthForecast forecast_lengths(
    const std::vector<Group>& groups, const Step& best, const Step& equal, const sim::Lengths& lengths) {
  const std::vector<DealSlot> slots = slots_of(groups);
  const std::vector<double> all = drawn_works(lengths, kSteps * best.global_batch);
  const auto batch = static_cast<std::size_t>(best.global_batch);
  Times by_cost;
  Times counted;
  Times evenly;
  for (std::size_t first = 0; first < all.size(); first += batch) {
    const Works works = std::span(all).subspan(first, batch);
    const double drawn = sum_of(works);
    by_cost.add(slots, deal_by_cost(works, slots, lengths.collation).works, drawn);
    counted.add(slots, by_count(works, best, lengths.collation), drawn);
    evenly.add(slots, by_count(works, equal, lengths.collation), drawn);
  }
  const double alike = alike_seconds(slots, best);
  return {
      .by_cost = by_cost.deal(best, alike),
      .by_count = counted.deal(best, alike),
      .equal = evenly.deal(equal, alike_seconds(slots, equal))};
}

}  // namespace isochron::plan
