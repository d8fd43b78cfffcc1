// The clusters that come with Isochron, by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/sim/cluster.h"

namespace isochron::sim {

struct BuiltinHelp {
  std::string name;
  std::string description;
};

/// In the order they are listed to users.
[[nodiscard]] std::vector<BuiltinHelp> builtin_clusters();

/// `steps` is the length of the run: schedules in stages (dynamic) and traces (burstable, spot) spread over it.
/// Throws std::invalid_argument naming the value and the permitted names.
[[nodiscard]] ClusterSpec builtin_cluster(std::string_view name, std::int64_t steps);

}  // namespace isochron::sim
