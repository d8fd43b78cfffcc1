#include "isochron/core/allocate/units.h"

namespace isochron::detail {
namespace {

// Clamped before it becomes an integer: a capacity may be infinite.
std::int64_t clamp_units(double units, std::int64_t most) {
  if (!(units > 0.0)) {
    return 0;
  }
  return units < static_cast<double>(most) ? static_cast<std::int64_t>(units) : most;
}

}  // namespace

std::int64_t units_within(const Slot& slot, const UnitBounds& bounds, double seconds, double guess) {
  const auto fits = [&](std::int64_t units) {
    return finish_seconds(slot, (bounds.first + units) * slot.granularity) <= seconds;
  };
  // The guess is nearly always right; otherwise strides that double, then bisection, correct it.
  std::int64_t low = clamp_units(guess, bounds.more);
  std::int64_t high = bounds.more;
  std::int64_t stride = 1;
  while (low > 0 && !fits(low)) {
    high = low - 1;
    low = std::max<std::int64_t>(0, low - stride);
    stride *= 2;
  }
  while (high - low >= stride && fits(low + stride)) {
    low += stride;
    stride *= 2;
  }
  high = std::min(high, low + stride - 1);
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace isochron::detail
