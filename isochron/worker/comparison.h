// Several policies in turn on the same workers: every round trains each of them anew with the same seed, hence the same
// samples, and they take turns of a few steps, so that a machine whose speed drifts is the same for all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isochron/sim/cluster.h"
#include "isochron/train/options.h"
#include "isochron/worker/comparison_result.h"
#include "isochron/worker/lane.h"

namespace isochron::worker {

struct ComparisonOptions {
  train::Options training;
  std::vector<Lane> lanes;
  sim::ClusterSpec cluster;         // names of the workers; the steps at which their speeds change
  std::int64_t steps = 0;           // of every lane in every round, 1 or more
  std::int64_t rounds = 1;          // 1 or more
  std::int64_t turn = 10;           // steps that a lane has before it is the next one's turn, 1 or more
  double solo_seconds = 4.0;        // for the workers' own speeds, per stage and round; 0: not measured, and no oracle
  std::int64_t evaluate_every = 0;  // steps; 0: at the end of a round
  double target_accuracy = 0.0;     // whose time is asked for, 0..1; 0: none
  std::filesystem::path logs;       // folder for run logs; empty: none
  std::function<void(const std::string&)> say;  // progress, on the first worker; empty: silence
};

struct ComparisonResults {
  bool first = false;                           // whether this worker is the one to report them
  std::vector<LaneResult> lanes;                // medians over the rounds
  std::vector<std::vector<LaneResult>> rounds;  // by round, then by lane
  std::vector<Stage> stages;                    // of the last round
  std::optional<double> bound;                  // noise_bound() of the last round's oracle
};

/// Collective over the workers of the job. "oracle" is a lane like the others: static shares in proportion to the solo
/// speeds, switched where the cluster changes.
[[nodiscard]] ComparisonResults compare(const ComparisonOptions& options);

}  // namespace isochron::worker
