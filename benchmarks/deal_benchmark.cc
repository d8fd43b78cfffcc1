// Time of one deal by cost, and how far it is from the bound: log-normal lengths (sigma 0.8, 8 to 2048), speeds up to
// 1:8, a fixed cost of half a sample. Arguments: workers, samples.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "isochron/core/deal/deal.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

void deal(benchmark::State& state, Collation collation) {
  Random random({2026});
  const auto workers = static_cast<std::size_t>(state.range(0));
  std::vector<double> works(static_cast<std::size_t>(state.range(1)));
  double mean = 0.0;
  for (double& work : works) {
    work = std::clamp(std::round(std::exp(5.0 + 0.8 * random.normal())), 8.0, 2048.0);
    mean += work / static_cast<double>(works.size());
  }
  std::vector<DealSlot> slots(workers);
  for (DealSlot& slot : slots) {
    const double seconds = 1e-4 * (1.0 + 7.0 * random.uniform());
    slot = {.curve = Curve::affine(0.5 * mean * seconds, seconds), .min_samples = 1};
  }
  Deal dealt;
  for ([[maybe_unused]] const auto _ : state) {
    dealt = deal_by_cost(works, slots, collation);
    benchmark::DoNotOptimize(dealt);
  }
  state.counters["over_bound"] = dealt.seconds / dealt.bound_seconds;
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({4, 32})->Args({8, 64})->Args({16, 256})->Args({64, 1024})->Args({256, 4096})->Args({256, 2048});
}

BENCHMARK_CAPTURE(deal, packed, Collation::kPacked)->Apply(sizes)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(deal, padded, Collation::kPadded)->Apply(sizes)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace isochron

BENCHMARK_MAIN();
