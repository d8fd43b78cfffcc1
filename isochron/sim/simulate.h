// Runs a policy on a cluster in simulated time: discrete events, deterministic for a seed.
//
// Noise is a pure function of (seed, worker, step), so every policy sees the same. The pseudo-policy "oracle" knows the
// true speeds and curves of the coming step, not its noise, and splits by the exact allocator: the yardstick.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "isochron/core/policy/controller.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/sim/cluster.h"

namespace isochron::sim {

enum class Sync : std::uint8_t { kBsp, kAsp, kSsp };

/// Gradient exchange by ring all-reduce over the slowest link, in buckets that start as backward produces them.
struct Network {
  double gradient_bytes = 0.0;  // 0: communication is free
  std::int64_t buckets = 8;     // >= 1
  bool overlap = true;          // false: the exchange starts after the last gradient
};

struct Options {
  std::int64_t global_batch = 128;
  std::int64_t steps = 500;
  std::uint64_t seed = 0;
  Sync sync = Sync::kBsp;
  std::int64_t staleness = 0;  // SSP only: how far a worker may run ahead of the slowest
  Network network;
  RateOptions rate;
};

struct Quantiles {
  double p50 = 0.0;
  double p90 = 0.0;
  double p99 = 0.0;
  double mean = 0.0;
};

struct Result {
  std::string policy;
  std::int64_t steps = 0;
  double total_seconds = 0.0;
  double samples_per_second = 0.0;
  Quantiles step_seconds;
  double balance = 0.0;     // mean over steps of mean_k t_k / max_k t_k
  double efficiency = 0.0;  // ideal time / achieved time; ideal: all workers at their noise-free speed all the time
  std::int64_t adjustments = 0;       // steps before which the split changed
  std::int64_t steps_to_balance = 0;  // see docs/simulator.md
  double recovery_steps_p50 =
      0.0;  // steps until back within 3 % of the oracle's expected time after a change of >= 20 %
  double recovery_steps_p90 = 0.0;
  double time_over_oracle = 0.0;  // total seconds / the oracle's on the same noise, without the blind first step
  double mean_staleness = 0.0;    // ASP and SSP
  std::int64_t max_staleness = 0;
  std::vector<std::int64_t> batch_sizes;  // of the last step
};

/// Called once per finished step (BSP) or push (ASP, SSP).
using Recorder = std::function<void(const StepRecord&)>;

/// `policy` is a specification for make_policy, or "oracle". Throws std::invalid_argument on bad options.
[[nodiscard]] Result simulate(
    const ClusterSpec& cluster, const Options& options, const std::string& policy, const Recorder& record = {});

}  // namespace isochron::sim
