// OmniLearn: a proportional controller on iteration times (Tyagi and Sharma, ACSOS 2020, arXiv 2305.12213; IEEE TPDS
// 2025, arXiv 2503.17469). Equations in omnilearn_law.h. Two variants:
//   paper  every iteration: smoothed times since the last adjustment, the law, bounds, then a dead band for all workers
//          together; a worker whose throughput drops after its batch grew never gets more than before;
//   code   the reference implementation of 2025: once per interval (an epoch), plain means, a dead band per worker.
// Neither law keeps the global batch. The papers leave open how it is restored: the paper variant adds one term to all
// batches, like the reference code, which breaks the balance again, or with sum=scaled multiplies them by one factor.
// What the code variant proposes is repaired by the controller. O(K) a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/baselines/omnilearn_law.h"
#include "isochron/baselines/smoothed_times.h"
#include "isochron/core/options.h"
#include "isochron/core/policy/policy.h"

namespace isochron {

struct OmniLearnOptions {
  std::string variant = "paper";  // or code, which has other defaults: dead_band 0.2, b_min 16, b_max 96
  std::string start = "uniform";  // or static: in proportion to the workers' weights
  std::string sum = "additive";   // paper: or scaled, see above
  double dead_band = 0.05;        // relative change of a batch below which it stays, 0..1
  double ewma = 0.2;              // paper: weight of the newest time, above 0 up to 1
  double drop = 0.2;              // paper: relative loss of throughput that makes a ceiling; 1: never. The paper names
                                  // no tolerance, but noise alone makes half of all moves look like a loss
  std::int64_t b_min = 1;         // least batch of every worker
  std::int64_t b_max = 0;         // largest batch of every worker; 0: no limit
  std::int64_t interval = 100;    // code: iterations between two adjustments

  void describe(OptionTable& table);
};

class OmniLearnPolicy final : public Policy {
 public:
  explicit OmniLearnPolicy(OmniLearnOptions options);

  Proposal start(const Roster& roster, std::span<const std::int64_t> current) override;
  Proposal observe(
      const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) override;
  void exchange(StateExchange& state) override;

 private:
  [[nodiscard]] bool is_code() const { return options_.variant == "code"; }
  [[nodiscard]] BatchBounds bounds_of(const Roster& roster, std::size_t place) const;
  void limit_losers(std::span<const Reading> readings, std::span<const std::int64_t> current);
  Proposal follow_paper(const Roster& roster, std::span<const std::int64_t> current);
  Proposal follow_code(const Roster& roster, std::span<const std::int64_t> current);
  Proposal adjust(std::vector<double> batches, std::span<const std::int64_t> current);

  OmniLearnOptions options_;
  std::int64_t iterations_ = 0;  // since the last adjustment (paper) or decision (code)
  SmoothedTimes times_;          // since the last adjustment
  std::vector<WorkerId> ids_;
  // One entry per worker.
  std::vector<std::int64_t> before_;       // batch before the last adjustment; 0: none, or already judged
  std::vector<double> throughput_before_;  // samples per second at that batch; NaN: unknown
  std::vector<std::int64_t> ceilings_;     // found by a loss of throughput; 0: none
};

}  // namespace isochron
