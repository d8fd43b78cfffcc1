// Equal shares, whatever the workers report: what data-parallel training does by default, and the baseline.
#pragma once

#include "isochron/core/options.h"
#include "isochron/core/policy/policy.h"

namespace isochron {

struct UniformOptions {
  void describe(OptionTable& /*table*/) {}
};

class UniformPolicy final : public Policy {
 public:
  explicit UniformPolicy(UniformOptions /*options*/) {}

  Proposal start(const Roster& roster, std::span<const std::int64_t> current) override;
  Proposal observe(
      const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) override;
  void exchange(StateExchange& /*state*/) override {}
};

}  // namespace isochron
