#include "isochron/core/allocate/allocate.h"

#include <algorithm>

#include "isochron/core/allocate/chain.h"
#include "isochron/core/allocate/uniform.h"

namespace isochron {
namespace {

// The chain decides how much the workers of each granularity take together; within one granularity the fast split is
// optimal.
std::vector<std::int64_t> split_mixed(
    std::span<const Slot> slots, const std::vector<std::int64_t>& granularities, std::int64_t global_batch) {
  const std::vector<std::int64_t> totals = detail::Chain(slots, granularities, global_batch).optimal_totals();
  std::vector<std::int64_t> batch_sizes(slots.size(), 0);
  for (std::size_t i = 0; i < granularities.size(); ++i) {
    std::vector<Slot> members;
    std::vector<std::size_t> places;
    for (std::size_t k = 0; k < slots.size(); ++k) {
      if (slots[k].granularity == granularities[i]) {
        members.push_back(slots[k]);
        places.push_back(k);
      }
    }
    const std::vector<std::int64_t> part = detail::split_uniform(members, totals[i]);
    for (std::size_t m = 0; m < places.size(); ++m) {
      batch_sizes[places[m]] = part[m];
    }
  }
  return batch_sizes;
}

}  // namespace

Allocation allocate(std::span<const Slot> slots, std::int64_t global_batch) {
  check_feasible(slots, global_batch);
  const std::vector<std::int64_t> granularities = detail::granularity_chain(slots);
  Allocation result;
  result.batch_sizes = granularities.size() == 1 ? detail::split_uniform(slots, global_batch)
                                                 : split_mixed(slots, granularities, global_batch);
  for (std::size_t k = 0; k < slots.size(); ++k) {
    result.seconds = std::max(result.seconds, detail::finish_seconds(slots[k], result.batch_sizes[k]));
  }
  return result;
}

}  // namespace isochron
