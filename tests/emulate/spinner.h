// A process that does nothing but use CPU time, in a group of its own.
#pragma once

#include <functional>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace isochron::emulate {

class Spinner {
 public:
  explicit Spinner(const std::function<void()>& before = [] {}) : pid_(fork()) {
    if (pid_ == 0) {
      setpgid(0, 0);
      before();
      for (volatile unsigned turns = 0;;) {
        turns = turns + 1;
      }
    }
    setpgid(pid_, pid_);
  }
  Spinner(const Spinner&) = delete;
  Spinner& operator=(const Spinner&) = delete;
  ~Spinner() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace isochron::emulate
