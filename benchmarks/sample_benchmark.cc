// The sampler and its ledger: time per sample index at 10^9 samples, and per step entered.
#include <cstdint>

#include <benchmark/benchmark.h>

#include "isochron/core/sample/ledger.h"
#include "isochron/core/sample/permutation.h"

namespace {

void permutation_index(benchmark::State& state) {
  const isochron::Permutation permutation(state.range(0), 42);
  std::int64_t position = 0;
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(permutation.index_at(position));
    position = position + 1 < state.range(0) ? position + 1 : 0;
  }
}
BENCHMARK(permutation_index)->Arg(60'000)->Arg(1'000'000'000)->Arg(std::int64_t{1} << 62);

void ledger_in_order(benchmark::State& state) {
  isochron::Ledger ledger(std::int64_t{1} << 53);
  std::int64_t first = 0;
  while (state.KeepRunning()) {
    ledger.stage({.positions = {.first = first, .last = first + 128}});
    ledger.commit();
    first += 128;
  }
}
BENCHMARK(ledger_in_order);

// The worst case: every other interval is missing at first, so that nothing can be joined, then they are filled in.
void ledger_scattered(benchmark::State& state) {
  const std::int64_t intervals = state.range(0);
  while (state.KeepRunning()) {
    isochron::Ledger ledger(intervals);
    for (const std::int64_t start : {0, 1}) {
      for (std::int64_t first = start; first < intervals; first += 2) {
        ledger.stage({.positions = {.first = first, .last = first + 1}});
        ledger.commit();
      }
    }
    benchmark::DoNotOptimize(ledger.complete());
  }
  state.SetItemsProcessed(state.iterations() * intervals);
}
BENCHMARK(ledger_scattered)->Arg(1'000)->Arg(1'000'000);

}  // namespace

BENCHMARK_MAIN();
