// Starts the workers of a job on this machine through mpirun, each inside its own limits: an unequal cluster on one
// host.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isochron/sim/cluster.h"

namespace isochron::emulate {

enum class Throttle : std::uint8_t { kAuto, kCgroup, kDutyCycle };

// Throws std::invalid_argument naming the value and the permitted names: auto, cgroup, duty-cycle.
Throttle parse_throttle(const std::string& name);

struct LaunchOptions {
  std::int64_t workers = 1;                 // ranks; with a cluster: its number of workers
  std::optional<sim::ClusterSpec> cluster;  // none: no limits
  // Asked some times a second: the cluster, if it is another one now. Those who are new in it join the job, those who
  // are gone from it are killed, and all get the cores it says. None: it stays as it is.
  std::function<std::optional<sim::ClusterSpec>()> changed_cluster;
  std::vector<std::string> command;           // program and arguments of one worker
  Throttle throttle = Throttle::kAuto;        // auto: cgroups if this user may make them, else the duty cycle
  std::int64_t period_microseconds = 10'000;  // of the CPU quota, 1,000 to 1,000,000
  std::string mpirun;                         // empty: as found beside the program, in .venv or on the PATH
  std::vector<std::string> mpirun_options;    // passed on
  bool recovery = true;                       // false: a lost worker ends the job
  std::int64_t replacements = 0;              // started for workers that die, in all; needs a job that takes them in
  // What workers may take until they take part in the job, and to end once they were asked to; then they are killed.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(5);
  std::chrono::milliseconds stop_timeout = std::chrono::minutes(5);
  // Whether the caller starts a job again that ended by itself: then one whose mpirun hangs, so that nobody can join,
  // is asked to end.
  bool starts_again = false;
  std::filesystem::path program;                // that has the subcommand `enter`; empty: this one
  std::function<void(const std::string&)> say;  // what a person should know: the throttle in use, changes of speed

  // Throws std::invalid_argument naming the field, the value and what is permitted.
  void validate() const;
};

struct LaunchEnd {
  int status = 0;
  bool asked_to_end = false;  // by a signal, which the job's status does not tell if its workers were lost then
};

// Runs the job to its end and returns its exit status (128 + signal if a signal ended it). A job that trains and loses
// a worker before its first step is started again, up to three times in all: MPI cannot begin without it. Whatever
// happens, limits are gone afterwards, and those that a killed launcher left behind are gone before. SIGINT and
// SIGTERM are passed on to the workers; a second one kills them. Each worker finds in its environment what
// io/worker_variables.h lists, OMP_NUM_THREADS=1 and TF_NUM_INTRAOP_THREADS=1. One at a time, and the calling thread
// must be the only one: it forks and waits for signals. Throws isochron::Error if the environment refuses, before any
// worker runs.
LaunchEnd launch(const LaunchOptions& options);

// Asks a job that launch() runs, named by the launcher's process number, to take in `workers` more; they have no
// limits. Throws std::invalid_argument if there is no such job.
void attach(const std::string& job, std::int64_t workers, const std::function<void(const std::string&)>& say);

}  // namespace isochron::emulate
