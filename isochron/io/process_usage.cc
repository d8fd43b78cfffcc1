#include "isochron/io/process_usage.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdint>
#include <fstream>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

namespace isochron::io {
namespace {

double in_seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// The second number of /proc/self/statm. It is not read by operator>>: with PyTorch's wheels for GPUs, which bring
/// parts of an older C++ library into the process, that ends in a segmentation fault.
std::int64_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  std::string text;
  std::getline(file, text);
  const std::size_t space = text.find(' ');
  std::int64_t pages = 0;
  if (space != std::string::npos) {
    std::from_chars(text.data() + space + 1, text.data() + text.size(), pages);
  }
  return pages;
}

double cpu_seconds(const rusage& usage) {
  return in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
}

rusage own_usage() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

}  // namespace

double cpu_seconds() {
  return cpu_seconds(own_usage());
}

MachineUsage process_usage(double cpu_began, double seconds) {
  const rusage usage = own_usage();
  const auto resident = static_cast<double>(resident_pages());
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  const double machine = page * static_cast<double>(sysconf(_SC_PHYS_PAGES));
  const double memory = page * resident / machine;
  return {
      .cpu = std::min((cpu_seconds(usage) - cpu_began) / std::max(seconds, 1e-9), 1.0),
      .memory = memory,
      .peak_memory = std::max(1024.0 * static_cast<double>(usage.ru_maxrss) / machine, memory)};
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace isochron::io
