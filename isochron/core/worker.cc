#include "isochron/core/worker.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "isochron/core/allocate/allocate.h"
#include "isochron/core/error.h"

namespace isochron {
namespace {

std::string name_of(const Worker& worker) {
  return "worker " + std::to_string(worker.id);
}

void validate_worker(const Worker& worker) {
  const auto check = [&](bool holds, const char* field, auto value, const std::string& permitted) {
    if (!holds) {
      refuse(name_of(worker) + ": " + field, value, permitted);
    }
  };
  const auto check_finite = [&](const char* field, double value) {
    check(value >= 0.0 && std::isfinite(value), field, value, "a finite number, 0 or more");
  };
  check(worker.min_batch >= 0, "min_batch", worker.min_batch, "0 or more");
  check(
      worker.max_batch >= worker.min_batch,
      "max_batch",
      worker.max_batch,
      "at least min_batch, " + std::to_string(worker.min_batch));
  check(worker.granularity >= 1, "granularity", worker.granularity, "1 or more");
  check_finite("weight", worker.weight);
  check_finite("offset_seconds", worker.offset_seconds);
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
  require_at_least("global batch", global_batch, 1);
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
