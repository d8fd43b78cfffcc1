// Starts other programs and waits for them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

namespace isochron::emulate {

/// The exit status of a process that could not become the program it was to run, as shells have it.
inline constexpr int kCannotStart = 127;
/// And of one that did not end in its time, as timeout(1) has it.
inline constexpr int kDidNotEnd = 124;

/// Starts `command` (the first is a path, or a name on the PATH) with nothing to read and no signal blocked, in a
/// process group of its own: what a terminal sends reaches the caller alone. It gets a SIGTERM if the calling thread
/// ends first. Throws isochron::Error if it cannot be started.
[[nodiscard]] pid_t start(const std::vector<std::string>& command);

struct Outcome {
  int status = 0;      // 128 + signal if a signal ended it; 127 if it could not be started, 124 if it did not end
  std::string output;  // of standard output and standard error together
};

/// Runs `command` to its end. At the limit it is killed with all of its group, and the output says so.
[[nodiscard]] Outcome run(
    const std::vector<std::string>& command, std::chrono::milliseconds limit = std::chrono::seconds(60));

/// What shells make of what wait() says.
[[nodiscard]] int exit_status(int wait_status);

/// Where `name` is: itself if it has a slash, else the first on the PATH; empty if it is no program that may be run.
[[nodiscard]] std::string find_program(const std::string& name);

/// Replaces this process; returns only if it cannot, and errno says why.
void replace_by(const std::vector<std::string>& command);

}  // namespace isochron::emulate
