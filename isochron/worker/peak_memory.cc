#include "isochron/worker/peak_memory.h"

#include <fstream>
#include <string>

#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>

namespace isochron::worker {
namespace {

double resident_peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const std::string key = "VmHWM:";
    if (line.starts_with(key)) {
      return 1024.0 * std::stod(line.substr(key.size()));
    }
  }
  return 0.0;
}

}  // namespace

void PeakMemory::reset() const {
  if (device_.is_cpu()) {
    ::malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): resets VmHWM
    return;
  }
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(device_.type());
  allocator->emptyCache();
  allocator->resetPeakStats(device_.index());
}

double PeakMemory::bytes() const {
  if (device_.is_cpu()) {
    return resident_peak();
  }
  const auto stats = c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index());
  return static_cast<double>(
      stats.reserved_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak);
}

}  // namespace isochron::worker
