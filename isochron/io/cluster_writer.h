// Writes a sim::ClusterSpec as a cluster file; the inverse of parse_cluster.
#pragma once

#include <string>
#include <string_view>

#include "isochron/sim/cluster.h"

namespace isochron::io {

/// The text of a cluster file that reads back as the same cluster. What has its default is left out.
[[nodiscard]] std::string to_toml(const sim::ClusterSpec& cluster);

}  // namespace isochron::io
