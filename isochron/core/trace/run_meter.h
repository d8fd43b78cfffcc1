// What a run achieved, gathered from the records of its steps. O(workers) per step. Not thread-safe.
//
// Records with a staleness are updates of single workers, which overlap: the time of the run is then that in which some
// worker was at work, and the balance compares the last iterations of all workers at every update.
#pragma once

#include <cmath>
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
  /// A record whose time is not finite counts for nothing.
  void add(const StepRecord& record);

  [[nodiscard]] std::int64_t steps() const { return static_cast<std::int64_t>(step_seconds_.size()); }
  [[nodiscard]] double seconds() const { return seconds_; }  // of the steps alone
  [[nodiscard]] double samples() const { return samples_; }
  [[nodiscard]] double samples_per_second() const { return steps() == 0 ? 0.0 : samples_ / seconds_; }
  [[nodiscard]] Quantiles step_seconds() const { return quantiles(step_seconds_); }
  /// Means over the steps of what metrics.h says of each, and of the last one; kUnknown if no step has one. The
  /// utilization is of steps alone.
  [[nodiscard]] double balance() const { return balance_.value(); }
  [[nodiscard]] double utilization() const { return utilization_.value(); }
  [[nodiscard]] double last_balance() const { return last_balance_; }
  [[nodiscard]] double last_utilization() const { return last_utilization_; }
  /// Of asynchronous updates; empty if there are none.
  [[nodiscard]] const StalenessCount& staleness() const { return staleness_; }

 private:
  /// Of the values that are known.
  struct Mean {
    double sum = 0.0;
    double count = 0.0;

    void add(double value) {
      if (std::isfinite(value)) {
        sum += value;
        ++count;
      }
    }
    [[nodiscard]] double value() const { return count > 0.0 ? sum / count : kUnknown; }
  };

  void add_seconds(const StepRecord& record);
  double balance_after(const StepRecord& record);

  std::vector<double> step_seconds_;
  double samples_ = 0.0;
  double seconds_ = 0.0;
  Mean balance_;
  Mean utilization_;
  double last_balance_ = kUnknown;
  double last_utilization_ = kUnknown;
  StalenessCount staleness_;
  double covered_until_ = 0.0;          // the end of the last time counted
  std::vector<WorkerStep> iterations_;  // everybody's last one, its whole time as the time computed
};

}  // namespace isochron
