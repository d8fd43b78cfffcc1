// What a run achieved, gathered from the records of its steps. O(workers) per step. Not thread-safe.
//
// Records with a staleness are updates of single workers, which overlap: the time of the run is then that in which some
// worker was at work, and the balance compares the last iterations of all workers at every update.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "isochron/core/trace/quantiles.h"
#include "isochron/core/trace/run_log.h"

namespace isochron {

/// How stale updates were.
struct StalenessCount {
  std::map<std::int64_t, std::int64_t> updates;  // how many, by staleness

  void add(std::int64_t staleness) { ++updates[staleness]; }
  [[nodiscard]] std::int64_t total() const;
  [[nodiscard]] double mean() const;       // 0 if there is none
  [[nodiscard]] std::int64_t max() const;  // likewise
};

class RunMeter {
 public:
  void add(const StepRecord& record);

  [[nodiscard]] std::int64_t steps() const { return static_cast<std::int64_t>(step_seconds_.size()); }
  [[nodiscard]] double seconds() const { return seconds_; }  // of the steps alone
  [[nodiscard]] double samples_per_second() const { return steps() == 0 ? 0.0 : samples_ / seconds_; }
  [[nodiscard]] Quantiles step_seconds() const { return quantiles(step_seconds_); }
  /// Mean over the steps of mean_k t_k / max_k t_k: 1 if all workers were done at the same moment.
  [[nodiscard]] double balance() const;
  /// Of asynchronous updates; empty if there are none.
  [[nodiscard]] const StalenessCount& staleness() const { return staleness_; }

 private:
  void add_seconds(const StepRecord& record);
  double balance_after(const StepRecord& record);

  std::vector<double> step_seconds_;
  double samples_ = 0.0;
  double seconds_ = 0.0;
  double balance_sum_ = 0.0;
  StalenessCount staleness_;
  double covered_until_ = 0.0;                    // the end of the last time counted
  std::map<WorkerId, double> iteration_seconds_;  // of everybody's last one
};

}  // namespace isochron
