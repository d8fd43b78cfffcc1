#include "isochron/cli/signals.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::cli {

SignalGuard::SignalGuard(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  descriptor_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) {
    const int why = errno;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    throw Error(std::string("cannot wait for signals: ") + std::strerror(why));
  }
}

SignalGuard::~SignalGuard() {
  ::close(descriptor_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalGuard::wait(double seconds, int descriptor) const {
  std::array<pollfd, 2> waiting{
      {{.fd = descriptor_, .events = POLLIN, .revents = 0},
       {.fd = descriptor, .events = POLLIN, .revents = 0}}};  // poll skips what is negative
  ::poll(waiting.data(), waiting.size(), static_cast<int>(1e3 * seconds));
  signalfd_siginfo info{};
  if (::read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    return static_cast<int>(info.ssi_signo);
  }
  return std::nullopt;
}

}  // namespace isochron::cli
