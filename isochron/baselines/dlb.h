// Dynamic load balancing by epochs (DLB, also called DBS): after every interval each worker's share p_k becomes
// proportional to p_k / t_k, with t_k its mean time over the interval. Under a linear cost one adjustment is exact; it
// never reacts faster than an interval. O(K) a step.
#pragma once

#include <cstdint>
#include <vector>

#include "isochron/baselines/smoothed_times.h"
#include "isochron/core/options.h"
#include "isochron/core/policy/policy.h"

namespace isochron {

struct DlbOptions {
  std::int64_t interval = 100;  // iterations that stand for an epoch, >= 1

  void describe(OptionTable& table);
};

class DlbPolicy final : public Policy {
 public:
  explicit DlbPolicy(DlbOptions options) : options_(options) {}

  Proposal start(const Roster& roster, std::span<const std::int64_t> current) override;
  Proposal observe(
      const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) override;
  void exchange(StateExchange& state) override;

 private:
  DlbOptions options_;
  std::int64_t iterations_ = 0;  // of the current interval
  SmoothedTimes times_{SmoothedTimes::kPlainMean};
};

}  // namespace isochron
