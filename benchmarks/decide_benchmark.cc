// A whole decision of a controller in the steady state: readings with 5 % noise in, split for the coming step out.
#include <cmath>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "isochron/core/policy/controller.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

constexpr std::size_t kRemembered = 1U << 16U;

std::vector<double> noise_factors() {
  Random random({1});
  std::vector<double> factors(kRemembered);
  for (double& factor : factors) {
    factor = std::exp(0.05 * random.normal());
  }
  return factors;
}

void decide(benchmark::State& state, const std::string& policy) {
  const auto workers = static_cast<std::size_t>(state.range(0));
  Roster roster{.workers = std::vector<Worker>(workers), .global_batch = 100 * static_cast<std::int64_t>(workers)};
  StepTelemetry telemetry{.step = 0, .workers = std::vector<WorkerTelemetry>(workers)};
  std::vector<double> scales(workers);
  for (std::size_t k = 0; k < workers; ++k) {
    roster.workers[k].id = telemetry.workers[k].worker = k;
    scales[k] = std::exp2(3.0 * static_cast<double>(k) / static_cast<double>(workers));
  }
  const std::vector<double> factors = noise_factors();
  Controller controller(roster, {.policy = policy});
  std::size_t drawn = 0;
  const auto step = [&] {
    for (std::size_t k = 0; k < workers; ++k) {
      const std::int64_t batch = controller.decision().batch_sizes[k];
      const double noise = factors[drawn++ % kRemembered];
      telemetry.workers[k].batch = batch;
      telemetry.workers[k].seconds = static_cast<double>(batch) * scales[k] * noise;
    }
    return controller.observe(telemetry).changed;
  };
  // Past the first adjustments, in which shapes are weighed as well.
  for (int n = 0; n < 10; ++n) {
    step();
  }
  for ([[maybe_unused]] const auto _ : state) {
    benchmark::DoNotOptimize(step());
  }
}

BENCHMARK_CAPTURE(decide, isochron, "isochron")->Arg(4)->Arg(16)->Arg(256)->Arg(1000)->Arg(10000);
BENCHMARK_CAPTURE(decide, omnilearn, "omnilearn")->Arg(4)->Arg(10000);
BENCHMARK_CAPTURE(decide, lb_bsp, "lb-bsp")->Arg(4)->Arg(10000);

}  // namespace
}  // namespace isochron

BENCHMARK_MAIN();
