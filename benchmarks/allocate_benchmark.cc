// Time of one exact allocation; B is 100 samples a worker.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "isochron/core/allocate/allocate.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

enum class Kind : std::uint8_t { kLinear, kAffine, kSaturating, kCeilings, kGranularity8, kMixedGranularity };

Slot make_slot(Kind kind, Random& random) {
  const double slope = 0.001 * (1.0 + 7.0 * random.uniform());  // speeds up to 8:1
  const double fixed = 0.05 * random.uniform();
  Slot slot;
  if (kind == Kind::kLinear) {
    slot.curve = Curve::linear(slope);
  } else if (kind == Kind::kAffine) {
    slot.curve = Curve::affine(fixed, slope);
  } else {
    slot.curve = Curve::saturating(fixed + slope * 60.0 * random.uniform(), fixed, slope);
  }
  if (kind == Kind::kCeilings) {
    slot.min_batch = 1;
    slot.max_batch = 60 + static_cast<std::int64_t>(random.below(200));
  } else if (kind == Kind::kGranularity8) {
    slot.granularity = 8;
  } else if (kind == Kind::kMixedGranularity) {
    slot.granularity = random.below(4) == 0 ? 8 : 1;
  }
  return slot;
}

void allocate_batch(benchmark::State& state, Kind kind) {
  Random random({2024});
  std::vector<Slot> slots;
  slots.reserve(static_cast<std::size_t>(state.range(0)));
  for (std::int64_t k = 0; k < state.range(0); ++k) {
    slots.push_back(make_slot(kind, random));
  }
  const std::int64_t global_batch = 100 * state.range(0);
  for ([[maybe_unused]] const auto _ : state) {
    benchmark::DoNotOptimize(allocate(slots, global_batch));
  }
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(4)->Arg(256)->Arg(10000);
}

BENCHMARK_CAPTURE(allocate_batch, linear, Kind::kLinear)->Apply(sizes);
BENCHMARK_CAPTURE(allocate_batch, affine, Kind::kAffine)->Apply(sizes);
BENCHMARK_CAPTURE(allocate_batch, saturating, Kind::kSaturating)->Apply(sizes);
BENCHMARK_CAPTURE(allocate_batch, saturating_with_ceilings, Kind::kCeilings)->Apply(sizes);
BENCHMARK_CAPTURE(allocate_batch, saturating_by_8, Kind::kGranularity8)->Apply(sizes);
BENCHMARK_CAPTURE(allocate_batch, saturating_by_1_and_8, Kind::kMixedGranularity)->Apply(sizes);

}  // namespace
}  // namespace isochron

BENCHMARK_MAIN();
