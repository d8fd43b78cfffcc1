// What a comparison found out, for people and for programs. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "isochron/core/trace/quantiles.h"
#include "isochron/core/trace/run_meter.h"
#include "isochron/worker/lane.h"

namespace isochron::worker {

/// One lane in one round, or the medians of several rounds.
struct LaneResult {
  std::string label;
  double samples_per_second = 0.0;
  double settled_samples_per_second = 0.0;  // without the first step, in which an adaptive policy knows nothing yet
  Quantiles step_seconds;
  double balance = 0.0;        // mean over the steps (core/trace/metrics.h)
  double utilization = 0.0;    // likewise
  double share_of_solo = 0.0;  // the speed over the sum of the workers' solo speeds
  double changes = 0.0;        // share of steps before which the split changed
  double loss = 0.0;           // of the last step
  std::optional<double> test_accuracy;
  std::optional<double> seconds_to_accuracy;
  std::vector<std::int64_t> batch_sizes;  // of the last step
  StalenessCount staleness;               // of asynchronous updates, over all rounds; empty if there are none
};

/// The workers' speeds when each computes by itself, over the steps from `first_step` to the next stage.
struct Stage {
  std::int64_t first_step = 0;
  std::vector<double> solo;  // samples per second, by rank; empty: not measured
};

/// `target`: test accuracy whose time is asked for; 0: none.
[[nodiscard]] LaneResult make_result(
    const std::string& label, const LaneLog& log, std::span<const Stage> stages, double target);

/// The largest share of the solo speeds that the noise permits: ideal over the expected maximum of the workers' times, each with the
/// mean and spread that it showed in `log`, a run with the oracle's split. None if there are too few steps.
[[nodiscard]] std::optional<double> noise_bound(const LaneLog& log, std::span<const Stage> stages);

/// Of equally named results, field by field.
[[nodiscard]] LaneResult median(std::span<const LaneResult> rounds);

/// One row per lane: speed, times, balance, utilization, share of the solo speeds, gain over uniform, share of the oracle's speed, accuracy.
[[nodiscard]] std::string comparison_table(std::span<const LaneResult> results);

/// One sentence that says what was gained.
[[nodiscard]] std::string comparison_sentence(std::span<const LaneResult> results, const std::string& cluster);

[[nodiscard]] nlohmann::ordered_json to_json(const LaneResult& result);

}  // namespace isochron::worker
