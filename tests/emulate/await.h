// Waits for something that other processes bring about.
#pragma once

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <sys/types.h>

namespace isochron::emulate {

/// False if `condition` does not hold within a time that no healthy machine needs.
template <class Condition>
bool await(Condition condition) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

inline std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// "R", "S", "T" for stopped …; empty if there is no such process.
inline std::string process_state(pid_t pid) {
  const std::string text = content("/proc/" + std::to_string(pid) + "/stat");
  return text.empty() ? "" : text.substr(text.rfind(')') + 2, 1);
}

/// It runs no more, whether or not its parent has taken notice.
inline bool has_ended(pid_t pid) {
  const std::string state = process_state(pid);
  return state.empty() || state == "Z";
}

}  // namespace isochron::emulate
