// What a run achieved, gathered from the records of its steps. O(workers) per step. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "isochron/core/trace/quantiles.h"
#include "isochron/core/trace/run_log.h"

namespace isochron {

class RunMeter {
 public:
  void add(const StepRecord& record);

  [[nodiscard]] std::int64_t steps() const { return static_cast<std::int64_t>(step_seconds_.size()); }
  [[nodiscard]] double seconds() const { return seconds_; }  // of the steps alone
  [[nodiscard]] double samples_per_second() const { return steps() == 0 ? 0.0 : samples_ / seconds_; }
  [[nodiscard]] Quantiles step_seconds() const { return quantiles(step_seconds_); }
  /// Mean over the steps of mean_k t_k / max_k t_k: 1 if all workers were done at the same moment.
  [[nodiscard]] double balance() const;

 private:
  std::vector<double> step_seconds_;
  double samples_ = 0.0;
  double seconds_ = 0.0;
  double balance_sum_ = 0.0;
};

}  // namespace isochron
