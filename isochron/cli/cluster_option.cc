#include "isochron/cli/cluster_option.h"

#include <stdexcept>

#include "isochron/core/error.h"
#include "isochron/io/cluster_file.h"
#include "isochron/sim/builtin.h"

namespace isochron::cli {

bool is_cluster_file(const std::string& cluster) {
  return cluster.ends_with(".toml") || cluster.find('/') != std::string::npos;
}

sim::ClusterSpec load_cluster(const std::string& cluster, std::int64_t steps) {
  if (!is_cluster_file(cluster)) {
    try {
      return sim::builtin_cluster(cluster, steps);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("--cluster: " + std::string(error.what()) + ", or a file whose name ends in .toml");
    }
  }
  try {
    return io::read_cluster_file(cluster);
  } catch (const Error& error) {
    throw std::invalid_argument(
        "--cluster is '" + cluster + "'; permitted: a file that can be read (" + error.what() + ")");
  }
}

}  // namespace isochron::cli
