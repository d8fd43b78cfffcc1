#include "isochron/emulate/process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::emulate {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::milliseconds(1);        // whether a process has ended
constexpr auto kTimeToDie = std::chrono::milliseconds(500);  // for one that was killed

void unblock_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

void read_nothing() {
  if (const int null = open("/dev/null", O_RDONLY); null >= 0) {
    dup2(null, STDIN_FILENO);
    close(null);
  }
}

[[noreturn]] void become(const std::vector<std::string>& command, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) {
    _exit(kCannotStart);  // it was gone before the line above
  }
  unblock_signals();
  read_nothing();
  replace_by(command);
  _exit(kCannotStart);
}

/// What comes until all who have the other end have closed it, or the deadline.
std::string read_until(int file, Clock::time_point deadline) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{.fd = file, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) {
      return text;
    }
    const ssize_t size = read(file, buffer.data(), buffer.size());
    if (size <= 0) {
      return text;
    }
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

/// What wait() says of it; nothing at the deadline, which a process that waits for a device may outlive even if killed.
std::optional<int> wait_until(pid_t child, Clock::time_point deadline) {
  int status = 0;
  while (waitpid(child, &status, WNOHANG) != child) {
    if (Clock::now() > deadline) {
      return std::nullopt;
    }
    std::this_thread::sleep_for(kPause);
  }
  return status;
}

}  // namespace

void replace_by(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
}

pid_t start(const std::vector<std::string>& command) {
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) {
    become(command, self);
  }
  if (child < 0) {
    throw Error("cannot start " + command.front() + ": " + std::strerror(errno));
  }
  setpgid(child, child);  // here too, so that it is done whoever comes first
  return child;
}

Outcome run(const std::vector<std::string>& command, std::chrono::milliseconds limit) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    become(command, self);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    throw Error("cannot start " + command.front() + ": " + std::strerror(errno));
  }
  setpgid(child, child);
  Outcome outcome;
  const auto deadline = Clock::now() + limit;
  outcome.output = read_until(ends[0], deadline);
  close(ends[0]);
  if (const auto status = wait_until(child, deadline)) {
    outcome.status = exit_status(*status);
    return outcome;
  }
  kill(-child, SIGKILL);
  (void)wait_until(child, Clock::now() + kTimeToDie);
  outcome.status = kDidNotEnd;
  outcome.output += "it has not ended within " + std::to_string(limit.count() / 1000) + " s";
  return outcome;
}

int exit_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string find_program(const std::string& name) {
  const auto may_run = [](const std::string& path) {
    std::error_code ignored;  // a folder of the PATH may be closed to this user
    return std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) {
    return may_run(name) ? name : "";
  }
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.append("/").append(name); may_run(folder)) {
      return folder;
    }
  }
  return "";
}

}  // namespace isochron::emulate
