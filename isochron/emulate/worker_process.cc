#include "isochron/emulate/worker_process.h"

#include <csignal>
#include <fstream>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace isochron::emulate {

WorkerProcess::WorkerProcess(const WorkerPids& pids)
    : pids_(pids), handle_(static_cast<int>(syscall(SYS_pidfd_open, pids.group, 0))) {
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pids_(other.pids_), handle_(std::exchange(other.handle_, -1)) {
}

WorkerProcess::~WorkerProcess() {
  if (handle_ >= 0) {
    close(handle_);
  }
}

bool WorkerProcess::is_alive() const {
  pollfd ended{.fd = handle_, .events = POLLIN, .revents = 0};
  return handle_ >= 0 && poll(&ended, 1, 0) == 0;
}

bool WorkerProcess::is_stopped() const {
  // PID (PROGRAM) STATE ..., where a program's name may hold anything.
  std::ifstream file("/proc/" + std::to_string(pids_.process) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t end = line.rfind(") ");
  return is_alive() && end != std::string::npos && line[end + 2] == 'T';
}

void WorkerProcess::signal(int number) const {
  if (is_alive()) {
    kill(-pids_.group, number);
  }
}

std::optional<std::chrono::nanoseconds> WorkerProcess::cpu_time() const {
  clockid_t clock = 0;
  timespec time{};
  if (!is_alive() || clock_getcpuclockid(pids_.process, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return std::nullopt;
  }
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace isochron::emulate
