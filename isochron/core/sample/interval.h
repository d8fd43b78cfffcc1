// Consecutive positions of an epoch.
#pragma once

#include <cstdint>

namespace isochron {

inline constexpr std::int64_t kMostPositions = std::int64_t{1} << 53;  // what a saved state can hold exactly

struct Interval {
  std::int64_t first = 0;
  std::int64_t last = 0;  // one past the end

  [[nodiscard]] std::int64_t size() const { return last - first; }
  bool operator==(const Interval&) const = default;
};

}  // namespace isochron
