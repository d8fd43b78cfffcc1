// Where this process runs, and what it takes of its machine.
#pragma once

#include <string>

namespace isochron::io {

struct ProcessUsage {
  double cpu_seconds = 0.0;  // of all threads, so far
  double memory = 0.0;       // resident memory over the machine's, 0..1
  double peak_memory = 0.0;  // the most that memory has been
};

ProcessUsage process_usage();

[[nodiscard]] std::string host_name();

}  // namespace isochron::io
