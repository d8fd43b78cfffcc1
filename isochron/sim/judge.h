// Whether a split is good: its expected time is within 3 % of that of the oracle's split.
//
// Expected means E[max_k t_k] over the workers' white noise at their true speeds; spikes, stalls and exchange aside.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/sim/fleet.h"

namespace isochron::sim {

class Judge {
 public:
  /// Batches are in units, of which a sample has so many.
  explicit Judge(std::int64_t global_batch, std::int64_t units_per_sample = 1)
      : global_batch_(global_batch), units_per_sample_(units_per_sample) {}

  /// `batch_sizes` are in the order of the fleet's members, for the step it has been advanced to.
  bool is_good(const Fleet& fleet, std::span<const std::int64_t> batch_sizes);

 private:
  /// The time that the slots are expected to take.
  double expected_seconds(const Fleet& fleet, std::span<const std::int64_t> batch_sizes);

  std::int64_t global_batch_;
  std::int64_t units_per_sample_;
  std::vector<Slot> slots_;
  std::vector<double> log_seconds_;
  std::vector<double> sigmas_;
  // The last question and its answer: as long as nothing changes, neither does the answer.
  std::vector<double> speeds_;
  std::vector<std::int64_t> batch_sizes_;
  bool good_ = false;
};

}  // namespace isochron::sim
