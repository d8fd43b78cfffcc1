// Cluster files: a sim::ClusterSpec as TOML.
//
//   name = "pair"                    # optional, as are description, sample_seconds and common_noise
//   [[worker]]
//   name = "fast"                    # optional; "worker-0", "worker-1", … by default
//   cores = 1.0                      # also kind, overhead, plateau, cold_seconds, min_batch, max_batch, granularity,
//                                    # gpu_share and absent
//   noise = 0.05                     # or { sigma, autocorrelation, spike_probability, spike_low, spike_high, drift }
//   interference = { slowdown = 2.0, on = 10, off = 90 }   # and phase
//   network = { rate = "100mbit", delay = "2ms" }
//   count = 3                        # repeats the worker as fast-0, fast-1, fast-2
//   [[change]]
//   at_step = 100                    # or at_seconds
//   worker = "fast-0"                # or "*" for all
//   cores = 0.5                      # or event = "kill" | "stop" | "continue" | "join"
//
// Whatever the bytes, the answer is a valid cluster or std::invalid_argument with "FILE:LINE: …" naming the key, the
// value and what is permitted. Unknown keys are refused. Limits, checked before memory is taken: 1 MiB of text, 100,000
// workers, 1000 bytes per text value, 16 values inside one another, 64 dots in a line.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "isochron/sim/cluster.h"

namespace isochron::io {

/// `file` is the name that errors carry. The cluster's own name defaults to the file's name without its extension.
[[nodiscard]] sim::ClusterSpec parse_cluster(std::string_view text, const std::string& file);

/// Throws isochron::Error naming the file if it cannot be read; otherwise like parse_cluster.
[[nodiscard]] sim::ClusterSpec read_cluster_file(const std::filesystem::path& path);

}  // namespace isochron::io
