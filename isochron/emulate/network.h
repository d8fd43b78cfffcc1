// A network for the workers of one job, each behind a link with its own rate and delay: network namespaces joined by a
// bridge, shaped by `tc`. Needs root, and the programs ip, tc and nsenter.
//
//   hub: bridge 10.0.0.1 ── port k ══ eth0 of worker k, 10.0.0.(k + 2)
//
// The rate holds in both directions, the delay for what the worker sends: a message from a to b takes a's delay, as in
// the simulator. From inside there is no way out: the workers see each other and the hub, where mpirun runs, and
// nothing else. The network is gone with its namespaces.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isochron/sim/cluster.h"

namespace isochron::emulate {

constexpr const char* kHubInterface = "hub";      // of the bridge, in the hub's namespace
constexpr const char* kWorkerInterface = "eth0";  // in a worker's namespace

/// Whether any worker's link is limited.
[[nodiscard]] bool has_limited_links(const sim::ClusterSpec& cluster);

class Network {
 public:
  /// Throws isochron::Error saying which command failed and how, with nothing left behind. `name` must pass for
  /// is_orphan() once this process is gone.
  Network(std::string name, const std::vector<sim::Link>& links);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  /// Another worker, after the last one. Throws isochron::Error.
  void add_worker(const sim::Link& link);

  /// Names of network namespaces.
  [[nodiscard]] std::string hub() const { return name_ + "-hub"; }
  [[nodiscard]] std::string of_worker(std::size_t worker) const { return name_ + "-" + std::to_string(worker); }

 private:
  void add_hub() const;
  void remove() const;

  std::string name_;
  std::size_t workers_ = 0;
};

/// The words that shape what a device sends, after `tc qdisc add dev DEVICE`; one line per command, empty if the link
/// has no limits.
[[nodiscard]] std::vector<std::vector<std::string>> shaping_commands(const sim::Link& link);

/// A command that runs what follows it in a network namespace.
[[nodiscard]] std::vector<std::string> command_inside(const std::string& network);

/// Moves this thread; throws isochron::Error.
void join_network(const std::string& network);

void remove_orphaned_networks();

}  // namespace isochron::emulate
