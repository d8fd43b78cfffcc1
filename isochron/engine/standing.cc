#include "isochron/engine/standing.h"

#include <algorithm>
#include <iterator>

#include "isochron/core/error.h"

namespace isochron {
namespace {

constexpr std::int64_t kMostExact = std::int64_t{1} << 53;

}  // namespace

void WorkerState::exchange(StateExchange& state) {
  worker.max_batch = std::min(worker.max_batch, kMostExact);  // as much as no limit
  state.field("id", worker.id);
  state.field("name", worker.name);
  state.field("kind", worker.kind);
  state.field("weight", worker.weight);
  state.field("min_batch", worker.min_batch);
  state.field("max_batch", worker.max_batch);
  state.field("granularity", worker.granularity);
}

void Standing::exchange(StateExchange& state) {
  state.field("progress", progress);
  WorkerState described{self};
  state.part("self", described);
  self = described.worker;
  state.field("failed_batch", failed_batch);
  state.field("in_pieces", in_pieces);
  state.field("next_id", next_id);
  state.field("evicted", evicted);
  state.field("clock", clock);
}

Settlement settle(std::span<const Standing> standings) {
  Settlement result;
  const auto furthest = std::ranges::max_element(standings, {}, &Standing::progress);
  ISO_CHECK(furthest != standings.end() && furthest->progress >= 0, "nobody knows the state of the job");
  result.leader = static_cast<int>(furthest - standings.begin());
  result.unfinished = furthest->progress % 2 == 1;
  result.progress = furthest->progress + (result.unfinished ? 1 : 0);
  result.next_id = std::ranges::max(standings, {}, &Standing::next_id).next_id;
  for (std::size_t rank = 0; rank < standings.size(); ++rank) {
    const Standing& standing = standings[rank];
    if (standing.progress < furthest->progress) {
      result.behind.push_back(static_cast<int>(rank));
    }
    result.workers.push_back(standing.self);
    std::ranges::copy(standing.evicted, std::back_inserter(result.evicted));
    result.clocks.push_back(standing.clock);
    if (standing.progress == Standing::kNothing) {
      result.workers.back().id = result.next_id++;
      result.joined.push_back(result.workers.back());
    }
    if (standing.failed_batch > 0) {
      result.out_of_memory.push_back(
          {.worker = standing.self.id, .batch = standing.failed_batch, .in_pieces = standing.in_pieces});
    }
  }
  return result;
}

std::vector<Worker> missing(std::span<const Worker> before, std::span<const Worker> now) {
  std::vector<Worker> gone;
  std::ranges::copy_if(before, std::back_inserter(gone), [now](const Worker& worker) {
    return std::ranges::find(now, worker.id, &Worker::id) == now.end();
  });
  return gone;
}

bool same_workers(std::span<const Worker> left, std::span<const Worker> right) {
  return std::ranges::equal(left, right, [](const Worker& a, const Worker& b) {
    return a.id == b.id && a.kind == b.kind && a.weight == b.weight && a.min_batch == b.min_batch &&
           a.max_batch == b.max_batch && a.granularity == b.granularity;
  });
}

}  // namespace isochron
