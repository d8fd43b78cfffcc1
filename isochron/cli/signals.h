// Signals as something to wait for, instead of something that interrupts.
#pragma once

#include <csignal>
#include <initializer_list>
#include <optional>

namespace isochron::cli {

/// Holds the signals back while it lives. Signals are held back per thread: make it before other threads start.
class SignalGuard {
 public:
  explicit SignalGuard(std::initializer_list<int> signals);
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  ~SignalGuard();

  /// The next signal, or nothing after `seconds`. With `descriptor` >= 0 it also ends early when that can be read.
  [[nodiscard]] std::optional<int> wait(double seconds, int descriptor = -1) const;

 private:
  sigset_t before_{};
  int descriptor_ = -1;
};

}  // namespace isochron::cli
