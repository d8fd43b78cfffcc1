// Shares in proportion to given weights, never adjusted: right when speeds are known and do not change.
//
// The weights come from the option, or from the workers themselves (core counts, FLOP/s): the static start of
// OmniLearn. With measured solo throughputs as weights it is the yardstick for adaptive policies.
#pragma once

#include <vector>

#include "isochron/core/options.h"
#include "isochron/core/policy/policy.h"

namespace isochron {

struct StaticOptions {
  std::vector<double> weights;  // one per worker in the roster's order; empty: the workers' own

  void describe(OptionTable& table);
};

class StaticPolicy final : public Policy {
 public:
  explicit StaticPolicy(StaticOptions options);

  /// Throws std::invalid_argument if there is not one positive weight for every worker.
  Proposal start(const Roster& roster, std::span<const std::int64_t> current) override;
  Proposal observe(
      const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) override;
  void exchange(StateExchange& /*state*/) override {}

 private:
  StaticOptions options_;
};

/// The workers' own weights; throws std::invalid_argument naming the first worker that has none.
std::vector<double> nominal_weights(const Roster& roster);

}  // namespace isochron
