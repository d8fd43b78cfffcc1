// What a split of B samples is expected to take on workers whose time curves are known, and what the best split gains
// over equal shares.
//
//   step = E[max_k t_k(b_k)] + rest
//
// The expectation of the maximum under every worker's noise is expected_max.h's; the rest (exchange, optimizer) is the
// same whatever the split. O(K) and an allocation. Pure functions; safe to call from several threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/allocate/allocate.h"

namespace isochron {

/// How fast a worker is: its curve and bounds, and how much its times vary.
struct Pace {
  Slot slot;
  double noise = 0.0;  // standard deviation of the logarithm of its times, 0 or more
};

enum class Shares : std::uint8_t { kBest, kEqual };

/// The best split of B by the exact allocator, or equal shares as far as the bounds permit: what equal machines would
/// get. Throws std::invalid_argument if the bounds cannot hold B.
[[nodiscard]] std::vector<std::int64_t> split(std::span<const Pace> paces, std::int64_t global_batch, Shares shares);

/// E[max_k t_k(b_k)] in seconds; a worker without samples takes no time. `batch_sizes` has one entry per pace.
[[nodiscard]] double expected_compute(std::span<const Pace> paces, std::span<const std::int64_t> batch_sizes);

/// How many times as fast the best split is as equal shares, with `rest_seconds` (0 or more) on top of both: 1 or more,
/// but for the noise. Throws like split().
[[nodiscard]] double speedup(std::span<const Pace> paces, std::int64_t global_batch, double rest_seconds);

}  // namespace isochron
