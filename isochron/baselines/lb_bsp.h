// LB-BSP, semi-dynamic load balancing: the load is fixed within a step and rebalanced at the barrier (Chen et al.,
// SoCC 2020, arXiv 1806.02508). The paper has one algorithm for each kind of cluster:
//   cpu  time is linear in the batch, so predict speeds and split by them (lb_bsp_cpu.h);
//   gpu  time is flat, then linear, so move samples from the slowest to the fastest worker (lb_bsp_gpu.h).
#pragma once

#include <memory>
#include <string>

#include "isochron/baselines/lb_bsp_gpu.h"
#include "isochron/baselines/predictor.h"
#include "isochron/core/options.h"
#include "isochron/core/policy/policy.h"

namespace isochron {

struct LbBspOptions {
  std::string device = "cpu";  // or gpu
  PredictorOptions predictor;  // cpu
  LbBspGpuOptions gpu;

  void describe(OptionTable& table);
};

class LbBspPolicy final : public Policy {
 public:
  explicit LbBspPolicy(const LbBspOptions& options);

  Proposal start(const Roster& roster, std::span<const std::int64_t> current) override;
  Proposal observe(
      const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) override;
  void exchange(StateExchange& state) override;

 private:
  std::unique_ptr<Policy> algorithm_;
};

}  // namespace isochron
