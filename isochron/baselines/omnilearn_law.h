// The control laws of OmniLearn as pure functions on real numbers, with their published defects: neither keeps the
// global batch, and the second may propose negative batches. A time that is not known is NaN: such a worker has no say
// in the mean and keeps its batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/worker.h"

namespace isochron {

inline double clamped(double batch, const BatchBounds& bounds) {
  return std::clamp(batch, static_cast<double>(bounds.min_batch), static_cast<double>(bounds.max_batch));
}

/// b_k' = b_k - X_k (t_k - mean(t)) = b_k mean(t) / t_k, with the throughput X_k = b_k / t_k: the proportional law of
/// arXiv 2305.12213 and 2503.17469. O(K).
std::vector<double> omnilearn_law(std::span<const std::int64_t> batches, std::span<const double> seconds);

/// Brings the sum back to the global batch by one term added to every batch, or by one factor, each batch within its
/// bounds; if the bounds cannot hold the global batch, all of them are at the nearer end. O(K) times 100 halvings.
enum class SumRule : std::uint8_t { kAdditive, kScaled };
std::vector<double> restore_sum(
    std::span<const double> batches, std::span<const BatchBounds> bounds, std::int64_t global_batch, SumRule rule);

/// One adjustment as the reference code that came with arXiv 2503.17469 makes it. O(K).
///   a) the law above, but a worker whose batch would change by less than `dead_band` of the new one keeps the old;
///   b) bounds; what they cut off (or added) is dealt out to all workers in equal parts, each part rounded up;
///   c) the drift of the sum is taken back from all workers in equal parts, and every batch is rounded up.
/// The bounds are not looked at again after b), and rounding up leaves up to K - 1 samples too many.
std::vector<double> omnilearn_code_law(
    std::span<const std::int64_t> batches,
    std::span<const double> seconds,
    std::int64_t global_batch,
    double dead_band,
    BatchBounds bounds);

}  // namespace isochron
