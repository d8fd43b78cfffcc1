// The shares of a simulated step whose samples cost differently: what each worker gets, and how much that is.
//
// An epoch has the works of up to about 130,000 samples, in whole steps; a longer run goes through them in another
// order. The replicas deal (core/replica/work_shares.h); an oracle does it by the true curves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/replica/replica.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/sim/fleet.h"
#include "isochron/sim/lengths.h"

namespace isochron::sim {

class LengthShares {
 public:
  LengthShares(const Lengths& lengths, std::int64_t global_batch, std::int64_t steps, std::uint64_t seed);

  [[nodiscard]] bool by_cost() const { return by_cost_; }
  /// Tells a replica the data.
  void open(Replica& replica) const;
  /// The workers take what the plan says.
  void follow(const StepPlan& plan);
  /// The workers take what an oracle deals of the coming step by cost; how many samples that is, by rank.
  std::vector<std::int64_t> deal_for_oracle(const Fleet& fleet);
  /// What the workers take, by rank, in samples of mean work.
  [[nodiscard]] const std::vector<double>& amounts() const { return amounts_; }
  /// The step is done.
  void finish() { sampler_.advance(); }

 private:
  /// Those of the samples at these positions.
  [[nodiscard]] std::vector<double> works_at(std::span<const std::int64_t> positions) const;
  [[nodiscard]] double total(std::span<const double> works) const;

  bool by_cost_;
  SampleWorks works_;
  SampleWorks known_;  // to a job, which may have to learn what squares cost
  double mean_work_ = 1.0;
  Sampler sampler_;  // in the same order as a replica's
  std::vector<double> amounts_;
};

}  // namespace isochron::sim
