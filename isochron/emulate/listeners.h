// What the processes of a running job listen on: every TCP port of a process and of those it started, as the kernel
// has it in /proc, also in network namespaces of their own.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace isochron::emulate {

struct Listener {
  pid_t process = 0;
  std::string program;  // its file's name
  std::string address;  // with brackets around one of IPv6
  int port = 0;
  bool loopback = false;
  std::string opener;  // who opened it, and for whom
};

/// Those of the process and its descendants, in the order of their numbers. Throws std::invalid_argument, "job is …;
/// permitted: …", if there is no such process.
[[nodiscard]] std::vector<Listener> listeners_of_job(const std::string& process);

/// "127.0.0.1" of "0100007F", as /proc/net/tcp writes addresses; nothing else than 8 or 32 hexadecimal digits.
[[nodiscard]] std::string address_of_proc(const std::string& text);

}  // namespace isochron::emulate
