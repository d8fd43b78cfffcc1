#include "isochron/worker/fence.h"

#include <csignal>
#include <thread>
#include <utility>

#include <sys/wait.h>

#include "isochron/emulate/process.h"

namespace isochron::worker {
namespace {

constexpr auto kTick = std::chrono::milliseconds(5);

bool succeeds(const std::string& command, std::chrono::milliseconds time) {
  const pid_t shell = emulate::start({"/bin/sh", "-c", command});
  const auto end = std::chrono::steady_clock::now() + time;
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(shell, &status, WNOHANG)) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(-shell, SIGKILL);
      waitpid(shell, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(kTick);
  }
  // Where the program that started this one ignores SIGCHLD nobody learns how a command ended: so it does not count.
  return ended == shell && emulate::exit_status(status) == 0;
}

}  // namespace

bool run_fence(std::string command, const Peer& peer, std::chrono::milliseconds time) {
  const std::pair<std::string, std::string> values[] = {{"{host}", peer.host}, {"{pid}", std::to_string(peer.process)}};
  for (const auto& [name, value] : values) {
    for (std::size_t at = command.find(name); at != std::string::npos; at = command.find(name, at + value.size())) {
      command.replace(at, name.size(), value);
    }
  }
  return succeeds(command, time);
}

}  // namespace isochron::worker
