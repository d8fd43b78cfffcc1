#include "isochron/engine/usage.h"

#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

namespace isochron {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double memory_share() {
  std::ifstream pages("/proc/self/statm");
  double size = 0;
  double resident = 0;
  pages >> size >> resident;
  return resident / static_cast<double>(sysconf(_SC_PHYS_PAGES));
}

}  // namespace isochron
