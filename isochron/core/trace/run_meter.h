// What a run achieved, gathered from the records of its steps. O(workers) per step. Not thread-safe.
//
// Updates of single workers overlap: the time of the run is then that in which some
// worker was at work, and the balance compares the last iterations of all workers at every update. Pages and tables
// take the time and the speed of a run from here, whatever its kind.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
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
  /// What is known of one record; kUnknown where nothing says.
  struct Figures {
    double samples_per_second = kUnknown;  // of all workers: after an update each as fast as in its last iteration
    double balance = kUnknown;             // as in metrics.h; after an update over the last iterations of all
    double utilization = kUnknown;         // as in metrics.h; updates have none
  };

  /// A record whose time is not finite, or negative, counts for nothing.
  void add(const StepRecord& record);
  void add(const UpdateRecord& record);
  /// The last iteration of a worker that is gone counts no longer.
  void add(const EventRecord& record);

  [[nodiscard]] std::int64_t steps() const { return static_cast<std::int64_t>(step_seconds_.size()); }
  [[nodiscard]] double seconds() const;  // of the steps alone
  [[nodiscard]] double samples() const { return samples_; }
  [[nodiscard]] double samples_per_second() const;  // kUnknown if they took no time
  [[nodiscard]] Quantiles step_seconds() const { return quantiles(step_seconds_); }
  /// Means over the records; kUnknown if none has one.
  [[nodiscard]] double balance() const { return balance_.value(); }
  [[nodiscard]] double utilization() const { return utilization_.value(); }
  [[nodiscard]] const Figures& last() const { return last_; }
  /// The staleness of asynchronous updates; empty if there are none.
  [[nodiscard]] const StalenessCount& staleness() const { return staleness_; }

 private:
  /// The mean of the values that are known.
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

  void count(double samples, double seconds);
  void cover(double start, double end);

  std::vector<double> step_seconds_;
  double samples_ = 0.0;
  double seconds_ = 0.0;
  Mean balance_;
  Mean utilization_;
  Figures last_;
  StalenessCount staleness_;
  // The time in which some worker was at work, from start to end; the oldest intervals become part of seconds_, since
  // updates come nearly in the order in which they end.
  std::map<double, double> covered_;
  double closed_until_ = -std::numeric_limits<double>::infinity();
  std::vector<WorkerStep> iterations_;  // the last one of everybody who is there, its whole time as the time computed
};

}  // namespace isochron
