#include "isochron/emulate/network.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/emulate/owner.h"
#include "isochron/emulate/process.h"

namespace isochron::emulate {
namespace {

namespace fs = std::filesystem;
using Command = std::vector<std::string>;

const fs::path kNamespaces = "/run/netns";  // where `ip netns` keeps them

void must_run(const Command& command) {
  const Outcome outcome = run(command);
  if (outcome.status == 0) {
    return;
  }
  const std::string reason = outcome.output.substr(0, outcome.output.find_first_of(".\n"));
  throw Error("cannot limit the network: `" + joined(command, " ") + "`: " + (reason.empty() ? "not found" : reason));
}

void delete_namespace(const std::string& name) {
  try {
    (void)run({"ip", "netns", "delete", name});
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the next launch tries again
  }
}

std::string address(std::size_t number) {
  return "10.0." + std::to_string(number / 256) + "." + std::to_string(number % 256) + "/16";
}

void shape(const std::string& network, const std::string& device, const sim::Link& link) {
  for (const Command& shaping : shaping_commands(link)) {
    Command command{"tc", "-n", network, "qdisc", "add", "dev", device};
    command.insert(command.end(), shaping.begin(), shaping.end());
    must_run(command);
  }
}

}  // namespace

bool has_limited_links(const sim::ClusterSpec& cluster) {
  return std::ranges::any_of(cluster.workers, [](const sim::WorkerSpec& worker) {
    return worker.link.bytes_per_second > 0.0 || worker.link.delay_seconds > 0.0;
  });
}

std::vector<Command> shaping_commands(const sim::Link& link) {
  std::vector<Command> commands;
  if (link.bytes_per_second > 0.0) {
    const double bits = std::max(8.0 * link.bytes_per_second, 1.0);
    // What may go out at once: a millisecond's worth, and not less than two packets.
    const double burst = std::max(link.bytes_per_second / 1000.0, 3100.0);
    commands.push_back(
        {"root",
         "handle",
         "1:",
         "tbf",
         "rate",
         std::to_string(std::llround(bits)) + "bit",
         "burst",
         std::to_string(std::llround(burst)),
         "latency",
         "50ms"});
  }
  if (link.delay_seconds > 0.0) {
    const std::string microseconds = std::to_string(std::llround(1e6 * link.delay_seconds)) + "us";
    const Command netem{"netem", "delay", microseconds, "limit", "100000"};
    commands.push_back(commands.empty() ? Command{"root"} : Command{"parent", "1:1"});
    commands.back().insert(commands.back().end(), netem.begin(), netem.end());
  }
  return commands;
}

Network::Network(std::string name, const std::vector<sim::Link>& links) : name_(std::move(name)) {
  for (const char* const program : {"ip", "tc", "nsenter"}) {
    if (find_program(program).empty()) {
      throw Error(std::string("network limits need the program ") + program + " (packages iproute2 and util-linux)");
    }
  }
  try {
    add_hub();
    for (const sim::Link& link : links) {
      add_worker(link);
    }
  } catch (...) {
    remove();
    throw;
  }
}

Network::~Network() {
  remove();
}

void Network::add_hub() const {
  must_run({"ip", "netns", "add", hub()});
  must_run({"ip", "-n", hub(), "link", "set", "lo", "up"});
  must_run({"ip", "-n", hub(), "link", "add", "name", kHubInterface, "type", "bridge"});
  must_run({"ip", "-n", hub(), "address", "add", address(1), "dev", kHubInterface});
  must_run({"ip", "-n", hub(), "link", "set", kHubInterface, "up"});
}

void Network::add_worker(const sim::Link& link) {
  const std::size_t worker = workers_++;  // remove() counts one that was half made
  const std::string inside = of_worker(worker);
  const std::string port = "port" + std::to_string(worker);
  must_run({"ip", "netns", "add", inside});
  must_run({"ip", "-n", inside, "link", "set", "lo", "up"});
  must_run({"ip", "-n", hub(), "link", "add", port, "type", "veth", "peer", "name", kWorkerInterface, "netns", inside});
  must_run({"ip", "-n", hub(), "link", "set", port, "master", kHubInterface, "up"});
  must_run({"ip", "-n", inside, "address", "add", address(worker + 2), "dev", kWorkerInterface});
  must_run({"ip", "-n", inside, "link", "set", kWorkerInterface, "up"});
  shape(inside, kWorkerInterface, link);
  shape(hub(), port, {.bytes_per_second = link.bytes_per_second});
}

void Network::remove() const {
  for (std::size_t worker = 0; worker < workers_; ++worker) {
    delete_namespace(of_worker(worker));
  }
  delete_namespace(hub());
}

Command command_inside(const std::string& network) {
  return {"nsenter", "--net=" + (kNamespaces / network).string()};
}

void join_network(const std::string& network) {
  const fs::path path = kNamespaces / network;
  const int handle = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool joined = handle >= 0 && setns(handle, CLONE_NEWNET) == 0;
  const int error = errno;
  if (handle >= 0) {
    close(handle);
  }
  if (!joined) {
    throw Error("cannot enter network namespace " + path.string() + ": " + std::strerror(error));
  }
}

void remove_orphaned_networks() {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(kNamespaces, ignored)) {
    if (const std::string name = entry.path().filename().string(); is_orphan(name)) {
      delete_namespace(name);
    }
  }
}

}  // namespace isochron::emulate
