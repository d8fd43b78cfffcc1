// CPU quotas as Linux understands them: so many microseconds of CPU time in every period.
#pragma once

#include <cstdint>

namespace isochron::emulate {

constexpr std::int64_t kShortestQuota = 1'000;      // microseconds; the kernel refuses less
constexpr std::int64_t kLongestPeriod = 1'000'000;  // microseconds; the kernel refuses more
constexpr double kFewestCores = static_cast<double>(kShortestQuota) / static_cast<double>(kLongestPeriod);

struct Quota {
  std::int64_t microseconds = 0;  // of CPU time; 0: the processes are stopped
  std::int64_t period = 0;        // microseconds
  bool operator==(const Quota&) const = default;
};

/// `wanted`, or longer where `fewest_cores` would get a quota that the kernel refuses: 0.1 core needs 10 ms, 0.01 core
/// 100 ms. `fewest_cores` is at least kFewestCores.
[[nodiscard]] std::int64_t period_for(double fewest_cores, std::int64_t wanted);

[[nodiscard]] Quota quota_for(double cores, std::int64_t period);

}  // namespace isochron::emulate
