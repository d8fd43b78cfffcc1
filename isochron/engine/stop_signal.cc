#include "isochron/engine/stop_signal.h"

#include <atomic>

namespace isochron {
namespace {

std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not take a lock");

void note(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
}

}  // namespace

StopSignal::StopSignal() {
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND | static_cast<unsigned>(SA_RESTART));
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &terminate_before_);
  sigaction(SIGINT, &action, &interrupt_before_);
}

StopSignal::~StopSignal() {
  sigaction(SIGTERM, &terminate_before_, nullptr);
  sigaction(SIGINT, &interrupt_before_, nullptr);
}

int StopSignal::received() {
  return first_signal;
}

}  // namespace isochron
