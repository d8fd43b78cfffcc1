#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "isochron/core/allocate/chain.h"
#include "isochron/core/allocate/uniform.h"
#include "isochron/core/error.h"

namespace isochron {
namespace {

using std::to_string;

void check_slot(const Slot& slot) {
  // One comparison for the usual case: the texts are costly to build.
  if (slot.min_batch >= 0 && slot.max_batch >= slot.min_batch && slot.granularity >= 1 && slot.offset_seconds >= 0.0 &&
      std::isfinite(slot.offset_seconds)) [[likely]] {
    return;
  }
  require_at_least("min_batch", slot.min_batch, 0);
  require_at_least("granularity", slot.granularity, 1);
  require(
      slot.max_batch >= slot.min_batch,
      "max_batch",
      slot.max_batch,
      "at least min_batch, " + to_string(slot.min_batch));
  refuse("offset_seconds", slot.offset_seconds, "a finite number, 0 or more");
}

std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
  return a > kNoLimit - b ? kNoLimit : a + b;
}

void check_sums(std::span<const Slot> slots, std::int64_t global_batch) {
  std::int64_t least = 0;
  std::int64_t most = 0;
  for (const Slot& slot : slots) {
    least = saturating_sum(least, slot.min_batch);
    most = saturating_sum(most, slot.max_batch);
  }
  if (least > global_batch) {
    throw std::invalid_argument(
        "the workers take at least " + to_string(least) +
        " samples together (sum of min_batch), but the global batch is " + to_string(global_batch));
  }
  if (most < global_batch) {
    throw std::invalid_argument(
        "the workers can take at most " + to_string(most) +
        " samples together (sum of max_batch), but the global batch is " + to_string(global_batch));
  }
}

[[noreturn]] void refuse_multiples(const std::vector<std::int64_t>& granularities, std::int64_t global_batch) {
  std::string list;
  for (const std::int64_t granularity : granularities) {
    list += (list.empty() ? "" : ", ") + to_string(granularity);
  }
  throw std::invalid_argument(
      "no multiples of the granularities (" + list + ") within min_batch and max_batch add up to the global batch, " +
      to_string(global_batch));
}

}  // namespace

void check_feasible(std::span<const Slot> slots, std::int64_t global_batch) {
  if (slots.empty()) {
    throw std::invalid_argument("there are no workers to share the global batch; permitted: 1 or more");
  }
  require_between("global batch", global_batch, 0, kMaxGlobalBatch);
  std::ranges::for_each(slots, check_slot);
  const std::vector<std::int64_t> granularities = detail::granularity_chain(slots);
  check_sums(slots, global_batch);
  const bool feasible = granularities.size() == 1 ? detail::uniform_feasible(slots, global_batch)
                                                  : detail::Chain(slots, granularities, global_batch).feasible();
  if (!feasible) {
    refuse_multiples(granularities, global_batch);
  }
}

}  // namespace isochron
