#include "isochron/emulate/schedule.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace isochron::emulate {
namespace {

constexpr double kBeforeAnyTime = -1.0;
constexpr std::int64_t kBeforeAnyStep = -1;

auto moment(const sim::Change& change) {
  return std::tuple(change.at_step.has_value() ? 0 : 1, change.at_step.value_or(0), change.at_seconds.value_or(0.0));
}

bool has_come(const sim::Change& change, std::int64_t step, double seconds) {
  return change.at_step ? *change.at_step <= step : *change.at_seconds <= seconds;
}

void apply(const sim::Change& change, Limits& limits) {
  limits.cores = change.cores.value_or(limits.cores);
  if (change.event == Event::kKill || change.event == Event::kJoin) {
    limits.present = change.event == Event::kJoin;
    limits.stopped = false;
  }
  if (change.event == Event::kStop || change.event == Event::kContinue) {
    limits.stopped = change.event == Event::kStop;
  }
}

}  // namespace

void require_absent_last(const sim::ClusterSpec& cluster) {
  if (!std::ranges::is_sorted(cluster.workers, {}, &sim::WorkerSpec::absent)) {
    throw std::invalid_argument(
        "a worker that is absent at first comes before one that is not; permitted: after all others");
  }
}

sim::ClusterSpec followed_by(const sim::ClusterSpec& cluster, sim::ClusterSpec next) {
  std::vector<sim::WorkerSpec> named = std::exchange(next.workers, {});
  for (const sim::WorkerSpec& worker : cluster.workers) {
    const auto found = std::ranges::find(named, worker.name, &sim::WorkerSpec::name);
    next.workers.push_back(found != named.end() ? *found : worker);
    if (found == named.end()) {
      next.workers.back().absent = true;
    } else {
      named.erase(found);
    }
  }
  next.workers.insert(next.workers.end(), named.begin(), named.end());
  return next;
}

Schedule::Schedule(sim::ClusterSpec cluster) : cluster_(std::move(cluster)) {
  std::ranges::stable_sort(cluster_.changes, {}, moment);
}

std::vector<Limits> Schedule::at(std::int64_t step, double seconds) const {
  std::vector<Limits> limits;
  limits.reserve(cluster_.workers.size());
  for (const sim::WorkerSpec& worker : cluster_.workers) {
    limits.push_back({.cores = worker.cores, .present = !worker.absent});
    for (const sim::Change& change : cluster_.changes) {
      if (has_come(change, step, seconds) && (change.worker == "*" || change.worker == worker.name)) {
        apply(change, limits.back());
      }
    }
  }
  return limits;
}

std::vector<std::vector<Limits>> Schedule::stages() const {
  std::vector<std::vector<Limits>> stages{at(kBeforeAnyStep, kBeforeAnyTime)};
  for (const sim::Change& change : cluster_.changes) {
    stages.push_back(at(
        change.at_step.value_or(std::numeric_limits<std::int64_t>::max()), change.at_seconds.value_or(kBeforeAnyTime)));
  }
  return stages;
}

}  // namespace isochron::emulate
