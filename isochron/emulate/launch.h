// Starts the workers of a job on this machine through mpirun, each inside its own limits: an unequal cluster on one
// host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isochron/sim/cluster.h"

namespace isochron::emulate {

enum class Throttle : std::uint8_t { kAuto, kCgroup, kDutyCycle };

struct LaunchOptions {
  std::int64_t workers = 1;                     // ranks; with a cluster: its number of workers
  std::optional<sim::ClusterSpec> cluster;      // none: no limits
  std::vector<std::string> command;             // program and arguments of one worker
  Throttle throttle = Throttle::kAuto;          // auto: cgroups if this user may make them, else the duty cycle
  std::int64_t period_microseconds = 10'000;    // of the CPU quota, 1,000 to 1,000,000
  std::string mpirun;                           // empty: as found beside the program, in .venv or on the PATH
  std::vector<std::string> mpirun_options;      // passed on
  std::function<void(const std::string&)> say;  // what a person should know: the throttle in use, changes of speed
};

// Runs the job to its end and returns its exit status (128 + signal if a signal ended it). Whatever happens, limits are
// gone afterwards. SIGINT and SIGTERM are passed on to the workers. Each worker finds in its environment:
// ISOCHRON_STEP_FILE (io/step_file.h) to publish its step in, ISOCHRON_WORKER_NAME, OMP_NUM_THREADS=1.
int launch(const LaunchOptions& options);

}  // namespace isochron::emulate
