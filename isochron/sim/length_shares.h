// The shares of a simulated step whose samples cost differently: what each worker gets, and how much that is.
//
// An epoch has the works of up to about 130,000 samples, in whole steps; a longer run goes through them in another
// order. The deal is that of real jobs (core/replica/work_shares.h); an oracle's is by the true curves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/replica/work_shares.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/core/telemetry.h"
#include "isochron/sim/fleet.h"
#include "isochron/sim/lengths.h"
#include "isochron/sim/splitter.h"

namespace isochron::sim {

class LengthShares {
 public:
  LengthShares(const Lengths& lengths, std::int64_t global_batch, std::int64_t steps, std::uint64_t seed);

  struct Share {
    std::int64_t samples = 0;
    double amount = 0.0;  // of samples of mean work
  };
  /// The shares of the coming step, in the order of the fleet's members. `decision` is the splitter's.
  const std::vector<Share>& deal(const Splitter& splitter, const Fleet& fleet, const Decision& decision);
  [[nodiscard]] const std::vector<Share>& shares() const { return shares_; }

  /// The step is done. Replaces the batches by what the policy is to see: units of work by cost.
  void finish(const Splitter& splitter, StepTelemetry& telemetry);

 private:
  [[nodiscard]] std::vector<double> coming_works() const;
  void deal_by_count(std::span<const std::int64_t> batch_sizes);
  void deal_for_oracle(const Fleet& fleet);
  [[nodiscard]] double total(std::span<const double> works) const;
  /// What a share of these positions costs in truth.
  [[nodiscard]] double true_work(std::span<const std::int64_t> positions) const;

  bool by_cost_;
  bool learned_;  // what squares cost is not known to policies
  SampleWorks works_;
  double mean_work_ = 1.0;
  Sampler sampler_;
  WorkShares work_;
  std::vector<WorkShares::Share> dealt_;  // by a policy
  std::vector<Share> shares_;
};

}  // namespace isochron::sim
