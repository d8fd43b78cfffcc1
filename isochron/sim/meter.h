// Gathers what a Result says of a run, step by step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "isochron/core/policy/controller.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/sim/fleet.h"
#include "isochron/sim/judge.h"
#include "isochron/sim/simulate.h"

namespace isochron::sim {

class Meter {
 public:
  /// Decisions are in units, of which a sample has so many.
  explicit Meter(std::int64_t global_batch, std::int64_t units_per_sample = 1)
      : global_batch_(global_batch), judge_(global_batch * units_per_sample, units_per_sample) {}

  /// The ideal time of a step of so many global batches at the fleet's present speeds, and what it took.
  void add_step(const Fleet& fleet, double seconds, std::int64_t batches = 1);
  /// The workers' computing times with one split, and whether that is a new one.
  void add_round(std::span<const double> compute_seconds, std::span<const std::int64_t> batch_sizes, bool changed);
  /// How good the split of `step` is for the fleet's true speeds.
  void follow_balance(std::int64_t step, const Fleet& fleet, const Decision& decision);
  void add_push(std::int64_t staleness, std::int64_t lead);

  /// Everything but the policy's name.
  [[nodiscard]] Result result() const;

 private:
  bool speed_changed(const Fleet& fleet);

  std::int64_t global_batch_;
  std::vector<double> step_seconds_;
  double total_seconds_ = 0.0;
  std::int64_t batches_ = 0;
  double ideal_seconds_ = 0.0;
  double balance_sum_ = 0.0;
  std::vector<WorkerStep> round_;  // the last one
  std::int64_t rounds_ = 0;
  std::int64_t adjustments_ = 0;
  std::vector<std::int64_t> batch_sizes_;

  Judge judge_;
  std::vector<double> cores_;  // of each worker in the step before, by id; 0: not there
  std::optional<std::int64_t> balanced_at_;
  std::optional<std::int64_t> changed_at_;  // a speed change that the split has not caught up with
  std::vector<double> recoveries_;

  double staleness_sum_ = 0.0;
  std::int64_t pushes_ = 0;
  std::int64_t max_staleness_ = 0;
  std::int64_t max_lead_ = 0;
};

}  // namespace isochron::sim
