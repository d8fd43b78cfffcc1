#include "isochron/core/allocate/level.h"

#include <array>
#include <cmath>
#include <limits>

namespace isochron::detail {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Stands in for the infinite rate of a flat line, which would make 0 x infinity.
constexpr double kSteepest = 1e30;
// So few units are cheaper to hand out one by one than to search for.
constexpr double kNearlyAll = 32.0;
constexpr int kMaxPasses = 100;
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
  for (auto* lane : {&lanes_.start, &lanes_.rate, &lanes_.flat_start, &lanes_.flat_rate, &lanes_.more}) {
    lane->assign(padded, 0.0);
  }
  double weighted_start = 0.0;
  for (std::size_t k = 0; k < slots.size(); ++k) {
    const Slot& slot = slots[k];
    if (slot.curve.is_table()) {
      tables_.push_back(k);
      continue;
    }
    const Curve::BentLine& line = slot.curve.bent_line();
    const auto g = static_cast<double>(slot.granularity);
    const double first = static_cast<double>(bounds[k].first) * g;
    lanes_.start[k] = slot.offset_seconds + line.fixed + line.slope * first;
    lanes_.rate[k] = std::min(kSteepest, 1.0 / (line.slope * g));
    lanes_.flat_start[k] = slot.offset_seconds + line.floor + line.floor_slope * first;
    lanes_.flat_rate[k] = std::min(kSteepest, 1.0 / (line.floor_slope * g));
    lanes_.more[k] = std::min(static_cast<double>(bounds[k].more), need_);
    total_rate_ += lanes_.rate[k];
    weighted_start += lanes_.start[k] * lanes_.rate[k];
  }
  // Exact, up to whole units, if every worker is beyond its plateau and between its bounds.
  guess_ = total_rate_ > 0.0 ? (need_ + weighted_start) / total_rate_ : 1.0;
}

double LevelSearch::units_within(double seconds) const {
  std::array<double, kWidth> sums{};
  for (std::size_t k = 0; k < lanes_.start.size(); k += kWidth) {
    for (std::size_t j = 0; j < kWidth; ++j) {
      const std::size_t i = k + j;
      const double units = std::min(
          (seconds - lanes_.start[i]) * lanes_.rate[i], (seconds - lanes_.flat_start[i]) * lanes_.flat_rate[i]);
      sums[j] += std::min(std::max(rounded_down(units), 0.0), lanes_.more[i]);
    }
  }
  double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (const std::size_t k : tables_) {
    const double units = guess_units(slots_[k], bounds_[k], seconds);
    sum += std::min(std::max(std::floor(units), 0.0), static_cast<double>(bounds_[k].more));
  }
  return sum;
}

double LevelSearch::level() const {
  double low = 0.0;
  double high = kInfinity;
  double low_units = 0.0;
  double seconds = guess_;
  double before_seconds = 0.0;
  double before_units = 0.0;
  for (int pass = 1; pass <= kMaxPasses && low < high; ++pass) {
    const double units = units_within(seconds);
    if (units <= need_) {
      low = seconds;
      low_units = units;
      if (need_ - units <= kNearlyAll) {
        break;
      }
    } else {
      high = seconds;
    }
    // The secant aims a little short of `need_`, at the low side, where the search ends.
    const double slope = pass == 1 ? total_rate_ : (units - before_units) / (seconds - before_seconds);
    before_seconds = seconds;
    before_units = units;
    seconds += (need_ - kNearlyAll / 2.0 - units) / slope;
    if (high == kInfinity) {
      seconds = seconds > low && seconds < kInfinity ? seconds : 2.0 * low + std::numeric_limits<double>::min();
    } else if (!(seconds > low && seconds < high) || pass % kBisectEvery == 0) {
      seconds = low + (high - low) / 2.0;
      if (seconds <= low || seconds >= high) {
        break;
      }
    }
  }
  (void)low_units;
  return low;
}

}  // namespace isochron::detail
