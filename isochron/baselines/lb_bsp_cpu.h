// LB-BSP for CPU clusters: predict every worker's speed v_k for the coming step and set b_k = B v_k / sum(v).
//
// The paper's workers report t(k-1), cpu(k) and memory(k) at the barrier before step k: what they say of CPU and memory
// counts for the coming step. A predictor therefore learns the speed of a step together with the usage that was
// reported at the barrier before it, which is also all it has when it predicts. The first split is equal. A worker
// without a usable report keeps its last estimate; one that never had any counts as the median of its kind. Rounding
// and bounds are the exact allocator's. O(K) a step, times the predictor's cost.
#pragma once

#include <memory>
#include <vector>

#include "isochron/baselines/predictor.h"
#include "isochron/core/policy/policy.h"

namespace isochron {

class LbBspCpu final : public Policy {
 public:
  /// Throws std::invalid_argument on options that make_predictor refuses.
  explicit LbBspCpu(PredictorOptions options);

  Proposal start(const Roster& roster, std::span<const std::int64_t> current) override;
  Proposal observe(
      const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) override;
  void exchange(StateExchange& state) override;

 private:
  struct Model {
    std::unique_ptr<Predictor> predictor;
    Usage usage;         // as last reported
    double speed = 0.0;  // expected of the coming step; 0: unknown

    /// Returns whether there was something to learn from.
    bool observe(const Reading& reading);
    void exchange(StateExchange& state);
  };

  [[nodiscard]] std::vector<double> split(const Roster& roster) const;

  PredictorOptions options_;
  std::vector<WorkerId> ids_;
  std::vector<Model> models_;  // one per worker
};

}  // namespace isochron
