// What a training run achieved, for people and for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "isochron/core/trace/run_meter.h"
#include "isochron/train/trainer.h"

namespace isochron::worker {

struct TrainResults {
  struct Point {
    std::int64_t step = 0;  // steps done
    double seconds = 0.0;   // of training up to here: evaluations and checkpoints left out
    train::Evaluation evaluation;
  };

  std::string policy;
  RunMeter meter;
  double loss = 0.0;                      // of the last step
  std::vector<std::int64_t> batch_sizes;  // as they would be in the next step
  std::vector<Point> evaluations;
  PushCounts pushes;             // of asynchronous training
  double target_accuracy = 0.0;  // 0: none

  [[nodiscard]] std::optional<double> test_accuracy() const;
  [[nodiscard]] std::optional<double> seconds_to_accuracy() const;
};

/// {"updates", "mean", "max", "histogram": how many updates had staleness 0, 1, …}; the last counts all beyond, too.
[[nodiscard]] nlohmann::ordered_json to_json(const StalenessCount& staleness);
/// "mean 2.91, max 7; updates by staleness: 0: 12, 1: 40, …"
[[nodiscard]] std::string staleness_text(const StalenessCount& staleness);

[[nodiscard]] std::string summary(const TrainResults& results);
/// The keys that every command uses: policy, samples_per_second, step_seconds, balance, utilization, batch_sizes, test_accuracy, ….
[[nodiscard]] nlohmann::ordered_json to_json(const TrainResults& results);

}  // namespace isochron::worker
