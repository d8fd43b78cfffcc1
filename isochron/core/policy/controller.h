// The replicated brain of a job: every worker holds one, feeds it the same telemetry and gets the same decision, so
// nobody asks a master.
//
// It aligns the telemetry with the roster, asks the policy, turns the proposal into the nearest legal split (sum
// exactly B, bounds and granularities kept) and adds the learning-rate factor. Pure: no clock, no I/O. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "isochron/core/curve/curve.h"
#include "isochron/core/policy/policy.h"
#include "isochron/core/rate/rate.h"
#include "isochron/core/state.h"
#include "isochron/core/telemetry.h"
#include "isochron/core/worker.h"

namespace isochron {

struct Decision {
  std::int64_t step = 0;                  // the step it is for
  std::vector<std::int64_t> batch_sizes;  // in the roster's order; they add up to B
  double learning_rate_factor = 1.0;
  bool changed = false;   // the split differs from the step before
  bool repaired = false;  // the proposal was not legal, rounding aside; `words` says how it was repaired
  Reason reason = Reason::kStarted;
  std::string words;
};

struct ControllerOptions {
  std::string policy = "isochron";
  RateOptions rate;
};

class Controller {
 public:
  /// Throws std::invalid_argument on an unknown policy, a bad option or a roster that cannot hold B.
  Controller(Roster roster, const ControllerOptions& options);

  [[nodiscard]] const Roster& roster() const { return roster_; }
  /// For the coming step.
  [[nodiscard]] const Decision& decision() const { return decision_; }

  /// The time of the worker at `place` in the roster over its batch, in units of what its batch of the decision takes:
  /// where more or less than B is to be dealt, or another choice of samples, all are to come out at the same value.
  [[nodiscard]] Curve curve(std::size_t place) const;

  /// The coming step's decision after a finished one. Any telemetry is survived: missing workers, zeros, NaN.
  const Decision& observe(const StepTelemetry& telemetry);

  /// Feeds the AdaScale rule; the others ignore it.
  void observe_gradients(const GradientMoments& moments) { rate_.observe(moments); }

  /// A join, a departure or a changed bound between two steps; B stays. Throws like the constructor, changing nothing.
  const Decision& change_workers(std::vector<Worker> workers);

  /// Everything learned, the roster's ids and the split in force included; restore() continues identically. The
  /// controller that restores must have been made with the same policy and workers of the same ids.
  [[nodiscard]] State state() const;
  void restore(const State& state);

 private:
  struct Snapshot;
  [[nodiscard]] Snapshot take_snapshot(Policy& policy) const;
  /// A policy like ours that has learned nothing yet.
  [[nodiscard]] std::unique_ptr<Policy> started_policy() const;

  std::string policy_name_;  // the whole specification
  Roster roster_;
  std::unique_ptr<Policy> policy_;
  RateSchedule rate_;
  Decision decision_;
};

}  // namespace isochron
