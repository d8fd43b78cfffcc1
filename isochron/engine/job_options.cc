#include <algorithm>

#include "isochron/engine/job.h"

namespace isochron {

std::chrono::milliseconds JobOptions::patience() const {
  constexpr double kLongest = 1e9;  // seconds, which any clock can count
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(timeout, kLongest) * 1000.0));
}

std::string JobOptions::device_type() const {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

}  // namespace isochron
