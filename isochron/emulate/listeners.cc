#include "isochron/emulate/listeners.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include <arpa/inet.h>

namespace isochron::emulate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kListening = "0A";  // the kernel's state TCP_LISTEN

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

template <typename Number>
std::optional<Number> number_of(const std::string& text, int base = 10) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const auto process = number_of<pid_t>(entry.path().filename().string());
    const std::string stat = process ? text_of(entry.path() / "stat") : "";
    // The program's name, in brackets, may hold anything.
    std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
    std::string state;
    pid_t parent = 0;
    if (fields >> state >> parent) {
      found[*process] = parent;
    }
  }
  return found;
}

std::set<pid_t> family_of(pid_t first) {
  const std::map<pid_t, pid_t> parent_of = parents();
  std::set<pid_t> family;
  for (const auto& [process, parent] : parent_of) {
    for (pid_t one = process; one > 0; one = parent_of.contains(one) ? parent_of.at(one) : 0) {
      if (one == first) {
        family.insert(process);
      }
    }
  }
  return family;
}

std::set<std::string> sockets_of(const fs::path& process) {
  std::set<std::string> inodes;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(process / "fd", none)) {
    const std::string target = fs::read_symlink(entry.path(), none).string();
    if (target.starts_with("socket:[") && target.ends_with(']')) {
      inodes.insert(target.substr(8, target.size() - 9));
    }
  }
  return inodes;
}

/// Both are told apart by what runs: nobody writes into a socket who opened it.
std::string opener_of(const std::string& program, const std::string& command_line, const std::string& address) {
  if (program.starts_with("prte") || program.starts_with("mpirun") || program.starts_with("orte")) {
    return address == "127.0.0.1" ? "MPI's daemon (PMIx or PRRTE), for the job's processes" : "MPI's daemon (PRRTE)";
  }
  if (command_line.find("isochron.launch") != std::string::npos) {
    return "PyTorch's store, kept by the launcher";
  }
  if (program.starts_with("python")) {
    return "gloo, NCCL or a store of PyTorch, a server of TensorFlow, or Isochron's own door for workers";
  }
  const bool serves = command_line.find("--serve") != std::string::npos;
  return serves ? "MPI's transport by TCP, or the live page of --serve" : "MPI's transport by TCP";
}

void add_listeners(const fs::path& process, pid_t number, std::vector<Listener>& found) {
  const std::set<std::string> inodes = sockets_of(process);
  std::error_code none;
  const std::string program = fs::read_symlink(process / "exe", none).filename().string();
  const std::string command_line = text_of(process / "cmdline");
  for (const char* const table : {"net/tcp", "net/tcp6"}) {
    std::istringstream lines(text_of(process / table));
    std::string line;
    std::getline(lines, line);  // the heading
    while (std::getline(lines, line)) {
      std::istringstream fields(line);
      std::array<std::string, 10> field;  // sl local remote state queues timer retransmits uid timeout inode
      for (std::string& one : field) {
        fields >> one;
      }
      const std::size_t colon = field[1].find(':');
      if (field[3] != kListening || !inodes.contains(field[9]) || colon == std::string::npos) {
        continue;
      }
      const std::string address = address_of_proc(field[1].substr(0, colon));
      found.push_back(
          {.process = number,
           .program = program,
           .address = address,
           .port = number_of<int>(field[1].substr(colon + 1), 16).value_or(0),
           .loopback = address.starts_with("127.") || address == "[::1]" || address.starts_with("[::ffff:127."),
           .opener = opener_of(program, command_line, address)});
    }
  }
}

}  // namespace

std::string address_of_proc(const std::string& text) {
  std::array<std::uint32_t, 4> parts{};
  const std::size_t count = text.size() / 8;
  if (text.size() != 8 && text.size() != 32) {
    return "?";
  }
  for (std::size_t part = 0; part < count; ++part) {
    const auto number = number_of<std::uint32_t>(text.substr(8 * part, 8), 16);
    if (!number) {
      return "?";
    }
    parts.at(part) = *number;  // in the byte order of this machine, as the kernel has it in memory
  }
  std::array<char, INET6_ADDRSTRLEN> name{};
  inet_ntop(count == 1 ? AF_INET : AF_INET6, parts.data(), name.data(), name.size());
  return count == 1 ? name.data() : "[" + std::string(name.data()) + "]";
}

std::vector<Listener> listeners_of_job(const std::string& process) {
  const auto first = number_of<pid_t>(process);
  if (!first || *first < 1 || !fs::exists("/proc/" + process)) {
    throw std::invalid_argument("job is '" + process + "'; permitted: the process number of a launcher or of a worker");
  }
  std::vector<Listener> found;
  for (const pid_t one : family_of(*first)) {
    add_listeners("/proc/" + std::to_string(one), one, found);
  }
  return found;
}

}  // namespace isochron::emulate
