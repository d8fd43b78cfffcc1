// Who takes which samples of a step, where samples cost differently: sequences of unequal length, images of unequal
// size.
//
//   minimise   max_k  offset_k + t_k(W_k),   W_k = sum of (w_i + c_k) over the samples i that worker k takes   (packed)
//                                            W_k = b_k (max w_i + c_k) for b_k samples                         (padded)
//   such that  every sample is taken once,   min_k <= b_k <= max_k,   W_k <= most work of k
//
// for samples of work w_i, such as tokens, and c_k, what a sample costs worker k on top of its work. Samples are
// indivisible, which makes the problem NP-hard, and easy in practice:
//   packed: the allocator says how much work each worker should get. The longest sample goes first, to the worker with
//           the most room below that; then samples move or change places while the worker that finishes last gains.
//           Up to 16 samples, a branch and bound of 20,000 nodes looks for the best deal of all. Within 0.1 % of the
//           bound for 16 samples a worker and more, log-normal lengths, speeds up to 1:8.
//   padded: workers get samples of like length. The samples are sorted by work and cut into one run per worker; for an
//           order of the workers the best cuts are exact. All orders are tried for up to 6 workers; for more, fast
//           workers first or last, then neighbours that change places.
// Where all works are equal, both give the allocator's split, which is optimal.
//
// Deterministic: ties go by position and by the order of the workers, so every worker computes the same deal and
// nothing is sent. O(B log B + K rounds) for B samples and K workers; under 2 ms for B = 4096 and K = 256. Pure
// functions; safe to call from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "isochron/core/curve/curve.h"
#include "isochron/core/names.h"

namespace isochron {

/// How the works of a worker's samples add up.
enum class Collation : std::uint8_t {
  kPacked,  // their sum: sequences one behind the other
  kPadded,  // samples times the largest: all are filled up to the longest
};

inline constexpr Names<Collation, 2> kCollationNames{{{Collation::kPacked, "packed"}, {Collation::kPadded, "padded"}}};

/// The most that a sample may cost: sums over any number of samples stay exact enough.
inline constexpr double kMostWork = 1e15;

/// One worker, as the deal sees it.
struct DealSlot {
  Curve curve;                          // seconds over work
  double offset_seconds = 0.0;          // time that passes whatever the work, >= 0
  double work_per_sample = 0.0;         // what a sample costs on top of its own work, 0 .. kMostWork
  std::int64_t min_samples = 0;         // >= 0
  std::int64_t max_samples = kNoLimit;  // >= min_samples
  double max_work = std::numeric_limits<double>::infinity();  // memory; above 0
};

struct Deal {
  std::vector<std::size_t> takers;  // by sample: the place of its worker among the slots
  std::vector<double> works;        // by worker: W_k
  double seconds = 0.0;             // the value of the objective
  /// Nobody can do better: the time if samples were divisible, or that of the longest one on the best worker for it.
  /// Packed, with the same work_per_sample on all workers; otherwise an estimate that ignores the padding.
  double bound_seconds = 0.0;
  bool fits = true;  // no worker is above its max_work; false where no deal was found that keeps it
};

/// Every sample to a worker. The bounds on samples are always kept; those on work wherever a deal is found that keeps
/// them, before any thought of time. Throws std::invalid_argument that names the value and what is permitted: a work
/// that is negative or not finite, bounds on samples that do not hold their number.
[[nodiscard]] Deal deal_by_cost(std::span<const double> works, std::span<const DealSlot> slots, Collation collation);

}  // namespace isochron
