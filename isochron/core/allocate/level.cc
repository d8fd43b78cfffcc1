#include "isochron/core/allocate/level.h"

#include <array>
#include <cmath>
#include <limits>

namespace isochron::detail {
namespace {

// Stands in for the infinite rate of a flat line, which would make 0 x infinity.
constexpr double kSteepest = 1e30;
constexpr double kNowhere = std::numeric_limits<double>::quiet_NaN();
// So few units are cheaper to hand out one by one than to search for.
constexpr double kHandful = 32.0;
constexpr int kBisectEvery = 4;
constexpr std::size_t kWidth = 4;  // independent sums, for the processor's pipelines

// The largest whole number up to x, for |x| < 2^51; larger ones pass. Adding 1.5 x 2^52 drops the fraction.
double rounded_down(double x) {
  constexpr double kShift = 0x1.8p52;
  return (x - 0.49999999 + kShift) - kShift;
}

}  // namespace

LevelSearch::LevelSearch(std::span<const Slot> slots, std::span<const UnitBounds> bounds, std::int64_t need)
    : slots_(slots), bounds_(bounds), need_(static_cast<double>(need)) {
  const std::size_t padded = (slots.size() + kWidth - 1) / kWidth * kWidth;
  for (auto* lane : {&lanes_.start, &lanes_.rate, &lanes_.flat_start, &lanes_.flat_rate, &lanes_.more, &lanes_.unit}) {
    lane->assign(padded, 0.0);
  }
  double weighted_start = 0.0;
  double smallest = kInfinity;
  for (std::size_t k = 0; k < slots.size(); ++k) {
    const Slot& slot = slots[k];
    const auto g = static_cast<double>(slot.granularity);
    smallest = std::min(smallest, g);
    if (slot.curve.is_table()) {
      tables_.push_back(k);
      continue;
    }
    const Curve::BentLine& line = slot.curve.bent_line();
    const double first = static_cast<double>(bounds[k].first) * g;
    lanes_.start[k] = slot.offset_seconds + line.fixed + line.slope * first;
    lanes_.rate[k] = std::min(kSteepest, 1.0 / (line.slope * g));
    lanes_.flat_start[k] = slot.offset_seconds + line.floor + line.floor_slope * first;
    lanes_.flat_rate[k] = std::min(kSteepest, 1.0 / (line.floor_slope * g));
    lanes_.more[k] = static_cast<double>(bounds[k].more);
    lanes_.unit[k] = g;
    total_rate_ += g * lanes_.rate[k];
    weighted_start += lanes_.start[k] * g * lanes_.rate[k];
  }
  handful_ = kHandful * smallest;
  // Exact, up to whole units, if every worker is beyond its plateau and between its bounds.
  first_guess_ = total_rate_ > 0.0 ? (need_ + weighted_start) / total_rate_ : 1.0;
}

double LevelSearch::guess_units(std::size_t k, double seconds) const {
  if (slots_[k].curve.is_table()) {
    const double batch = slots_[k].curve.capacity(seconds - slots_[k].offset_seconds);
    return batch / static_cast<double>(slots_[k].granularity) - static_cast<double>(bounds_[k].first);
  }
  return std::min((seconds - lanes_.start[k]) * lanes_.rate[k], (seconds - lanes_.flat_start[k]) * lanes_.flat_rate[k]);
}

double LevelSearch::samples_within(double seconds) const {
  std::array<double, kWidth> sums{};
  for (std::size_t k = 0; k < lanes_.start.size(); k += kWidth) {
    for (std::size_t j = 0; j < kWidth; ++j) {
      const std::size_t i = k + j;
      const double units = std::min(
          (seconds - lanes_.start[i]) * lanes_.rate[i], (seconds - lanes_.flat_start[i]) * lanes_.flat_rate[i]);
      sums[j] += lanes_.unit[i] * std::min(std::max(rounded_down(units), 0.0), lanes_.more[i]);
    }
  }
  double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (const std::size_t k : tables_) {
    sum += static_cast<double>(slots_[k].granularity) *
           std::min(std::max(std::floor(guess_units(k, seconds)), 0.0), static_cast<double>(bounds_[k].more));
  }
  return sum;
}

double LevelSearch::level() const {
  double low = 0.0;
  double high = kInfinity;
  double enough = handful_;
  double seconds = first_guess_;
  double rate = total_rate_;  // samples per second: of all workers at first, then of the secant
  double samples = samples_within(seconds);
  for (int pass = 1;; ++pass) {
    (samples <= need_ ? low : high) = seconds;
    if (samples <= need_ && need_ - samples <= enough) {
      return low;
    }
    // Aims a little short of the need, since the search ends on that side.
    double next = seconds + (need_ - handful_ / 2.0 - samples) / rate;
    if (pass % kBisectEvery == 0) {
      next = kNowhere;
      enough *= 2.0;  // a jump inside the bracket: the search would only creep up to it
    }
    if (!(next > low && next < high)) {
      next = high < kInfinity ? low + (high - low) / 2.0 : 2.0 * low + std::numeric_limits<double>::min();
    }
    if (next <= low || next >= high) {
      return low;
    }
    const double next_samples = samples_within(next);
    rate = (next_samples - samples) / (next - seconds);
    seconds = next;
    samples = next_samples;
  }
}

}  // namespace isochron::detail
