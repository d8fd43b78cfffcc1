#include "isochron/core/replica/progress.h"

#include <algorithm>
#include <iterator>

#include "isochron/core/error.h"

namespace isochron {
namespace {

constexpr std::int64_t kMostExact = std::int64_t{1} << 53;

}  // namespace

std::string name_of(const Worker& worker) {
  return worker.name.empty() ? "worker-" + std::to_string(worker.id) : worker.name;
}

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

void ProgressReport::exchange(StateExchange& state) {
  state.field("progress", progress);
  WorkerState described{self};
  state.part("self", described);
  self = described.worker;
  state.field("failed_batch", failed_batch);
  state.field("chunkable", chunkable);
  state.field("moments_known", moments_known);
  state.field("next_id", next_id);
  state.field("evicted", evicted);
  state.field("clock", clock);
}

std::string ProgressReport::encode() const {
  ProgressReport copy = *this;
  return save_state(copy).serialize();
}

ProgressReport ProgressReport::decode(const std::string& text) {
  ProgressReport report;
  restore_state(report, State::parse(text));
  return report;
}

Settlement settle(std::span<const ProgressReport> reports) {
  Settlement result;
  const auto furthest = std::ranges::max_element(reports, {}, &ProgressReport::progress);
  ISO_CHECK(furthest != reports.end() && furthest->progress >= 0, "nobody knows the state of the job");
  result.leader = static_cast<int>(furthest - reports.begin());
  result.unfinished = furthest->progress % 2 == 1;
  result.progress = furthest->progress + (result.unfinished ? 1 : 0);
  result.moments_known = std::ranges::all_of(reports, &ProgressReport::moments_known);
  result.next_id = std::ranges::max(reports, {}, &ProgressReport::next_id).next_id;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const ProgressReport& report = reports[rank];
    if (report.progress < furthest->progress) {
      result.behind.push_back(static_cast<int>(rank));
    }
    result.workers.push_back(report.self);
    std::ranges::copy(report.evicted, std::back_inserter(result.evicted));
    result.clocks.push_back(report.clock);
    if (report.progress == ProgressReport::kNothing) {
      Worker& newcomer = result.workers.back();
      newcomer.id = result.next_id++;
      newcomer.name = name_of(newcomer);
      result.joined.push_back(result.workers.back());
    }
    if (report.failed_batch > 0) {
      result.out_of_memory.push_back(
          {.worker = report.self.id, .batch = report.failed_batch, .chunkable = report.chunkable});
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
