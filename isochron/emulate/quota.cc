#include "isochron/emulate/quota.h"

#include <algorithm>
#include <cmath>

namespace isochron::emulate {

std::int64_t period_for(double fewest_cores, std::int64_t wanted) {
  const auto shortest = static_cast<std::int64_t>(std::ceil(static_cast<double>(kShortestQuota) / fewest_cores));
  return std::min(std::max(wanted, shortest), kLongestPeriod);
}

Quota quota_for(double cores, std::int64_t period) {
  const std::int64_t microseconds = std::llround(cores * static_cast<double>(period));
  return {.microseconds = std::max(microseconds, kShortestQuota), .period = period};
}

}  // namespace isochron::emulate
