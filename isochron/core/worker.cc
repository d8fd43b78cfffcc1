#include "isochron/core/worker.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "isochron/core/allocate/allocate.h"

namespace isochron {
namespace {

std::string name_of(const Worker& worker) {
  return "worker " + std::to_string(worker.id);
}

void validate_worker(const Worker& worker) {
  const auto refuse = [&](const std::string& field, const std::string& value, const std::string& permitted) {
    throw std::invalid_argument(name_of(worker) + ": " + field + " is " + value + "; permitted: " + permitted);
  };
  if (worker.min_batch < 0) {
    refuse("min_batch", std::to_string(worker.min_batch), "0 or more");
  }
  if (worker.max_batch < worker.min_batch) {
    refuse("max_batch", std::to_string(worker.max_batch), "at least min_batch, " + std::to_string(worker.min_batch));
  }
  if (worker.granularity < 1) {
    refuse("granularity", std::to_string(worker.granularity), "1 or more");
  }
  if (!(worker.weight >= 0.0) || !std::isfinite(worker.weight)) {
    refuse("weight", std::to_string(worker.weight), "a finite number, 0 or more");
  }
  if (!(worker.offset_seconds >= 0.0) || !std::isfinite(worker.offset_seconds)) {
    refuse("offset_seconds", std::to_string(worker.offset_seconds), "a finite number, 0 or more");
  }
}

void check_batch_fits(const Roster& roster) {
  std::vector<Slot> slots;
  slots.reserve(roster.workers.size());
  for (const Worker& worker : roster.workers) {
    slots.push_back(
        {.curve = {},
         .offset_seconds = worker.offset_seconds,
         .min_batch = worker.min_batch,
         .max_batch = worker.max_batch,
         .granularity = worker.granularity});
  }
  check_feasible(slots, roster.global_batch);
}

}  // namespace

void Roster::validate() const {
  if (workers.empty()) {
    throw std::invalid_argument("the cluster has no workers; permitted: 1 or more");
  }
  if (global_batch < 1) {
    throw std::invalid_argument("global batch is " + std::to_string(global_batch) + "; permitted: 1 or more");
  }
  std::vector<WorkerId> ids;
  ids.reserve(workers.size());
  for (const Worker& worker : workers) {
    validate_worker(worker);
    ids.push_back(worker.id);
  }
  std::ranges::sort(ids);
  if (const auto twin = std::ranges::adjacent_find(ids); twin != ids.end()) {
    throw std::invalid_argument("worker id " + std::to_string(*twin) + " is there twice; permitted: distinct ids");
  }
  check_batch_fits(*this);
}

}  // namespace isochron
