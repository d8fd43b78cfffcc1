// Runs a policy on a cluster in simulated time: discrete events, deterministic for a seed.
//
// Noise is a pure function of (seed, worker, step), so every policy sees the same. The pseudo-policy "oracle" knows the
// true speeds and curves of the coming step, not its noise, and splits by the exact allocator: the yardstick. The
// "late-oracle" knows those of the step before.
//
// In step, the workers run the step protocol of real jobs (replicas.h): whatever follows from what happens is its work.
//
// BSP: all workers compute, exchange (see ring.h) and go on together; a step takes as long as its slowest worker.
// Local rounds: every worker takes its share of `round_steps` global batches in as many local steps, and all exchange
// once, with nothing to overlap; a step of the result is a round.
// ASP and SSP: each worker pushes to and pulls from a parameter server when it is done; SSP holds a worker back that is
// more than `staleness` iterations ahead of the slowest. New batch sizes are decided whenever every worker has reported
// since the last decision, and hold from a worker's next iteration. A "step" of theirs is B samples pushed, a run is as
// many samples as under BSP, and noise and interference follow each worker's own iterations.
//
// A kill loses the step (BSP) or the worker's iteration (ASP, SSP) it falls into. A worker that is stopped computes
// nothing until it continues. A new speed holds from the next step or iteration. What changes nothing (the kill of a
// worker that is not there) is ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isochron/core/policy/controller.h"
#include "isochron/core/staleness/sync.h"
#include "isochron/core/trace/former_run.h"
#include "isochron/core/trace/quantiles.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/sim/cluster.h"
#include "isochron/sim/lengths.h"

namespace isochron::sim {

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
  std::int64_t staleness = 0;    // SSP only: how far a worker may run ahead of the slowest
  std::int64_t round_steps = 0;  // local only: global batches of a round; 0: chosen by network_share
  double network_share = 0.05;   // of the time, that exchanges may take where they are chosen
  Network network;
  RateOptions rate;
  double failure_seconds = 0.05;    // BSP: from a kill until the others have noticed and go on, >= 0
  bool nominal_weights = false;     // tell the policies the workers' cores, as weights
  std::vector<FormerSpeed> former;  // of the workers in an earlier run, by name: where the first split comes from
  bool replica_each = false;        // in step: every worker has a replica of its own, where one for all says the same
  std::optional<Lengths> lengths;   // samples cost differently, BSP only; an overhead is of samples of mean cost

  /// Throws std::invalid_argument naming the field, the value and what is permitted.
  void validate() const;

  /// Samples of a run, which is one epoch: B in every step. 0: more than a run log can count, or ASP and SSP, whose
  /// pushes belong to no step. The options are valid.
  [[nodiscard]] std::int64_t samples() const;
};

struct Result {
  std::string policy;
  std::int64_t steps = 0;
  double total_seconds = 0.0;
  double first_step_seconds = 0.0;
  double samples_per_second = 0.0;
  Quantiles step_seconds;
  double balance = 0.0;          // mean over the steps (core/trace/metrics.h)
  double share_of_peak = 0.0;    // the speed over the sum of the workers' true speeds at a large batch, step by step
  std::int64_t adjustments = 0;  // steps before which the split changed

  // A split is good if its expected time, E[max_k t_k] at the true speeds, is within 3 % of that of the oracle's split.
  std::int64_t steps_to_balance = 0;  // steps before the first with a good split; `steps` if there was none
  std::int64_t speed_changes = 0;     // times that a worker's speed changed by a factor of 1.2 or more between steps
  double recovery_steps_p50 = 0.0;    // steps from such a change until a good split; 1: only the step it came with
  double recovery_steps_p90 = 0.0;

  double time_over_oracle = 0.0;  // see time_over(); filled in by compare()
  double mean_staleness = 0.0;    // ASP and SSP: updates by others between a worker's pull and its push
  std::int64_t max_staleness = 0;
  std::int64_t max_lead = 0;              // ASP and SSP: iterations a worker was ahead of the slowest when it started
  std::vector<std::int64_t> batch_sizes;  // of the last step
};

/// Told what happens; none of them: nothing is recorded.
struct Recorder {
  std::function<void(const StepRecord&)> step;      // finished (BSP)
  std::function<void(const UpdateRecord&)> update;  // pushed (ASP, SSP); its number is the worker's iteration
  std::function<void(const EventRecord&)> event;    // a change of the cluster that took effect
};

/// `policy` is a specification for make_policy, "oracle" or "late-oracle". Throws std::invalid_argument on bad options.
[[nodiscard]] Result simulate(
    const ClusterSpec& cluster, const Options& options, const std::string& policy, const Recorder& recorder = {});

/// Total seconds over the oracle's on the same noise, both without the first step, in which nothing is known yet.
[[nodiscard]] double time_over(const Result& result, const Result& oracle);

/// Each policy on the same noise, with its time over the oracle's, which runs once.
[[nodiscard]] std::vector<Result> compare(
    const ClusterSpec& cluster, const Options& options, const std::vector<std::string>& policies);

}  // namespace isochron::sim
