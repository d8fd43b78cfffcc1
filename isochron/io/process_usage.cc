#include "isochron/io/process_usage.h"

#include <algorithm>
#include <array>
#include <climits>
#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

namespace isochron::io {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

ProcessUsage process_usage() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::ifstream pages("/proc/self/statm");
  double size = 0;
  double resident = 0;
  pages >> size >> resident;
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  const double machine = page * static_cast<double>(sysconf(_SC_PHYS_PAGES));
  const double memory = page * resident / machine;
  return {
      .cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime),
      .memory = memory,
      .peak_memory = std::max(1024.0 * static_cast<double>(usage.ru_maxrss) / machine, memory)};
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace isochron::io
