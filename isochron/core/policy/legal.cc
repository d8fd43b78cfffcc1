#include "isochron/core/policy/legal.h"

#include <algorithm>
#include <cmath>

#include "isochron/core/allocate/allocate.h"
#include "isochron/core/error.h"

namespace isochron {
namespace {

// Whether `batch` suits the worker's granularity; `remainder` is what the one worker still to be found takes on top of
// its multiple, and 0 once it was found.
bool is_grained(const Worker& worker, std::int64_t batch, std::int64_t smallest, std::int64_t& remainder) {
  if (worker.granularity == 1) {
    return true;
  }
  const std::int64_t rest = batch % worker.granularity;
  if (rest != 0 && rest == remainder && worker.granularity == smallest) {
    remainder = 0;
    return true;
  }
  return rest == 0;
}

}  // namespace

std::optional<std::vector<std::int64_t>> as_legal(const Roster& roster, std::span<const double> wished) {
  if (wished.size() != roster.workers.size()) {
    return std::nullopt;
  }
  const auto global_batch = static_cast<double>(roster.global_batch);
  const std::int64_t smallest = std::ranges::min(roster.workers, {}, &Worker::granularity).granularity;
  std::int64_t remainder = roster.global_batch % smallest;
  std::int64_t left = roster.global_batch;
  std::vector<std::int64_t> batches(wished.size());
  for (std::size_t k = 0; k < wished.size(); ++k) {
    const Worker& worker = roster.workers[k];
    // The comparison refuses NaN too, so the cast is defined.
    if (!(wished[k] >= 0.0 && wished[k] <= global_batch)) {
      return std::nullopt;
    }
    const auto batch = static_cast<std::int64_t>(wished[k]);
    if (static_cast<double>(batch) != wished[k] || batch < worker.min_batch || batch > worker.max_batch ||
        batch > left || !is_grained(worker, batch, smallest, remainder)) {
      return std::nullopt;
    }
    batches[k] = batch;
    left -= batch;
  }
  return left == 0 ? std::optional(std::move(batches)) : std::nullopt;
}

// Minimising sum (b_k - w_k)^2 adds, one after the other, the units with the least b_k - w_k + g_k / 2, b_k before the
// unit. That is the order in which the min-max allocator fills curves that take that many seconds.
std::vector<std::int64_t> nearest_legal(const Roster& roster, std::span<const double> wished) {
  const std::size_t count = roster.workers.size();
  ISO_CHECK(wished.size() == count, "one wish per worker");
  const auto global_batch = static_cast<double>(roster.global_batch);
  std::vector<Slot> slots;
  slots.reserve(count);
  for (std::size_t k = 0; k < count; ++k) {
    const Worker& worker = roster.workers[k];
    const double wish =
        std::isnan(wished[k]) ? global_batch / static_cast<double>(count) : std::clamp(wished[k], 0.0, global_batch);
    const double unit = std::min(static_cast<double>(worker.granularity), global_batch);
    slots.push_back(
        // In terms of b_k after the unit; 1.5 B keeps the time from being negative.
        {.curve = Curve::affine(1.5 * global_batch - wish - unit / 2.0, 1.0),
         .min_batch = worker.min_batch,
         .max_batch = worker.max_batch,
         .granularity = worker.granularity});
  }
  return allocate(slots, roster.global_batch).batch_sizes;
}

}  // namespace isochron
