// What `isochron profile` measured of one model on one machine: how long a batch takes and how much memory.
//
// The four costs of a step, each by itself, so that a planner can put them together for other machines: forward and
// backward (the points), preparing samples, the optimizer's step, and moving gradients through memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/core/curve/curve.h"
#include "isochron/core/curve/fit.h"

namespace isochron::plan {

struct ProfilePoint {
  std::int64_t batch = 0;     // samples, 1 or more
  double p50_seconds = 0.0;   // forward and backward, above 0
  double p90_seconds = 0.0;   // p50 or more
  double bytes = 0.0;         // peak memory of the process (of the GPU, on one)
  std::int64_t readings = 0;  // behind the quantiles; 0: unknown
};

struct Profile {
  std::string model;
  std::string dataset;
  std::int64_t dataset_size = 0;  // samples of an epoch
  std::string device;
  std::string machine;       // its name
  double cores = 1.0;        // that the process was permitted, > 0
  std::int64_t threads = 1;  // that computed
  double parameter_bytes = 0.0;
  double prepare_seconds = 0.0;      // per sample, by one thread
  double update_seconds = 0.0;       // per step: the optimizer
  double copy_seconds = 0.0;         // per byte of gradients that is received and added
  std::vector<ProfilePoint> points;  // by strictly increasing batch, 1 or more

  /// Throws std::invalid_argument naming the field, the value and what is permitted.
  void validate() const;

  /// Forward and backward: the medians, made monotone, joined by straight lines.
  [[nodiscard]] Curve curve() const;
  /// The bent line nearest to the medians: a summary in three numbers.
  [[nodiscard]] BentFit fit() const;
  /// Standard deviation of the logarithm of times: (log p90 - log p50) / 1.28, the mean over the larger half of the
  /// batches, whose times are nearest to those of steps.
  [[nodiscard]] double noise() const;
  [[nodiscard]] std::int64_t largest_batch() const { return points.back().batch; }
  /// The largest batch that `bytes` of memory hold; 0 if none does, kNoLimit if memory does not grow.
  [[nodiscard]] std::int64_t batch_for_memory(double bytes) const;
};

}  // namespace isochron::plan
