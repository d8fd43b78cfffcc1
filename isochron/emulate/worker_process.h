// A worker's process, which is a grandchild of the launcher: it can be signalled and measured, but not waited for.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include <sys/types.h>
#include <time.h>

namespace isochron::emulate {

/// As the worker itself reports them.
struct WorkerPids {
  pid_t process = 0;  // of its program
  pid_t group = 0;    // of that, all that it starts, and `isochron enter`, which leads the group
};

class WorkerProcess {
 public:
  /// A worker that has ended already is taken for what it is.
  explicit WorkerProcess(const WorkerPids& pids);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  ~WorkerProcess();

  /// Until `isochron enter` has ended, a moment after the program.
  [[nodiscard]] bool is_alive() const;
  [[nodiscard]] pid_t process() const { return pids_.process; }
  /// By a signal, SIGSTOP for instance.
  [[nodiscard]] bool is_stopped() const;
  /// To its whole group; nothing happens once it is gone, even if others have its number by then.
  void signal(int number) const;
  /// That its threads have used so far; none once its program has ended.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> cpu_time() const;

 private:
  WorkerPids pids_;
  int handle_;  // a pidfd of the group's leader: it never means another process; -1: gone
};

}  // namespace isochron::emulate
