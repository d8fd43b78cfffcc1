// The --cluster option: a built-in cluster by its name, or a cluster file.
#pragma once

#include <cstdint>
#include <string>

#include "isochron/sim/cluster.h"

namespace isochron::cli {

/// Whether `cluster` means a file: it ends in .toml or has a slash.
[[nodiscard]] bool is_cluster_file(const std::string& cluster);

/// `steps` is the length of the run, over which the changes of a built-in cluster spread. Throws std::invalid_argument
/// naming the option.
[[nodiscard]] sim::ClusterSpec load_cluster(const std::string& cluster, std::int64_t steps);

}  // namespace isochron::cli
