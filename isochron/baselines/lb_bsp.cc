#include "isochron/baselines/lb_bsp.h"

#include "isochron/baselines/lb_bsp_cpu.h"

namespace isochron {

void LbBspOptions::describe(OptionTable& table) {
  table.choice("device", device, {"cpu", "gpu"}, "the paper's algorithm for this kind of cluster");
  table.choice("predictor", predictor.kind, predictor_kinds(), "cpu: how the coming step's speeds are foreseen");
  table.number("ewma", predictor.ewma, 0.001, 1.0, "cpu, predictor ewma: weight of the newest speed");
  table.integer("order", predictor.order, 1, 16, "cpu, predictor ar: past speeds it looks at");
  table.integer("window", gpu.window, 1, 1'000'000, "gpu: steps in the first observation window");
  table.number("step", gpu.step, 0.0, 1.0, "gpu: first move, as a share of the mean batch; at least one unit");
  table.number("memory-limit", gpu.memory_limit, 0.0, 1.0, "gpu: share of memory that a batch may grow into");
  table.number(
      "restart", gpu.restart, 0.0, 1000.0, "gpu: growth of the imbalance, as a share, that makes it start again");
}

LbBspPolicy::LbBspPolicy(const LbBspOptions& options) {
  if (options.device == "gpu") {
    algorithm_ = std::make_unique<LbBspGpu>(options.gpu);
  } else {
    algorithm_ = std::make_unique<LbBspCpu>(options.predictor);
  }
}

Proposal LbBspPolicy::start(const Roster& roster, std::span<const std::int64_t> current) {
  return algorithm_->start(roster, current);
}

Proposal LbBspPolicy::observe(
    const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) {
  return algorithm_->observe(roster, readings, current);
}

void LbBspPolicy::exchange(StateExchange& state) {
  algorithm_->exchange(state);
}

}  // namespace isochron
