#include "isochron/emulate/process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::emulate {
namespace {

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

Outcome run(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    unblock_signals();
    read_nothing();
    replace_by(command);
    _exit(kCannotStart);
  }
  close(ends[1]);
  Outcome outcome;
  std::array<char, 4096> buffer{};
  for (ssize_t size = 0; (size = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    outcome.output.append(buffer.data(), static_cast<std::size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    throw Error("cannot start " + command.front() + ": " + std::strerror(errno));
  }
  outcome.status = exit_status(status);
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
