// One of the trainings that a comparison runs in turn: a policy, how gradients are weighted, how the rate is scaled.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isochron/core/rate/rate.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/engine/job.h"

namespace isochron::worker {

struct Lane {
  std::string label;   // as the user wrote it
  std::string policy;  // a specification for make_policy, or "oracle"
  Weighting weighting = Weighting::kExact;
  RateRule rate = RateRule::kNone;
};

/// "uniform,omnilearn:dead-band=0.1+mean,omnilearn+linear,isochron": policies as everywhere, each followed by what
/// differs from `defaults`: exact or mean weights, a learning-rate rule. Throws std::invalid_argument naming what is
/// not permitted.
[[nodiscard]] std::vector<Lane> parse_lanes(const std::string& text, const Lane& defaults);

struct Evaluated {
  std::int64_t step = 0;
  double seconds = 0.0;  // of training up to here
  double accuracy = 0.0;
  double loss = 0.0;
};

/// What happened to a lane in one round.
struct LaneLog {
  std::vector<StepRecord> steps;
  std::vector<UpdateRecord> updates;      // of asynchronous training, in place of steps: those of all workers
  std::vector<std::int64_t> at;           // of updates: the step of the global batch that each is part of
  std::vector<std::int64_t> batch_sizes;  // likewise: the split in the end
  double seconds = 0.0;                   // of all its turns, evaluations left out
  std::vector<Evaluated> evaluations;
};

}  // namespace isochron::worker
