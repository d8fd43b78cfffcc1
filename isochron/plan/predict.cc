#include "isochron/plan/predict.h"

#include <algorithm>
#include <cmath>

#include "isochron/sim/ring.h"

namespace isochron::plan {
namespace {

constexpr double kBucketBytes = 25.0 * 1024 * 1024;  // the engine's (DataParallelOptions)

std::vector<const Machine*> members_of(const std::vector<Group>& groups) {
  std::vector<const Machine*> members;
  for (const Group& group : groups) {
    members.insert(members.end(), static_cast<std::size_t>(group.count), &group.machine);
  }
  return members;
}

/// Gradients through the memory of the machine that is slowest at it.
double copying_seconds(const std::vector<const Machine*>& members, double gradient_bytes) {
  double slowest = 0.0;
  for (const Machine* const machine : members) {
    slowest = std::max(slowest, machine->copy_seconds);
  }
  const auto count = static_cast<double>(members.size());
  return 2.0 * (count - 1.0) / count * gradient_bytes * slowest;
}

std::vector<Pace> paces_of(const std::vector<const Machine*>& members) {
  std::vector<Pace> paces;
  paces.reserve(members.size());
  for (const Machine* const machine : members) {
    paces.push_back(
        {.slot =
             {.curve = machine->curve,
              .min_batch = machine->min_batch,
              .max_batch = machine->max_batch,
              .granularity = machine->granularity},
         .noise = machine->noise});
  }
  return paces;
}

double exposed_exchange(const std::vector<const Machine*>& members, const Exchange& exchange, double compute_seconds) {
  sim::Link slowest;
  for (const Machine* const machine : members) {
    slowest = sim::slower(slowest, machine->link);
  }
  const double buckets = std::max(1.0, std::floor(exchange.gradient_bytes / kBucketBytes));
  const double bucket = sim::ring_seconds(exchange.sent * exchange.gradient_bytes / buckets, members.size(), slowest);
  const sim::Network network{.gradient_bytes = exchange.gradient_bytes, .buckets = static_cast<std::int64_t>(buckets)};
  const double whole = buckets * bucket;
  const double hidden = whole - sim::exposed_seconds(network, bucket, compute_seconds);
  return whole - exchange.overlap * hidden;
}

}  // namespace

Step predict_step(
    const std::vector<Group>& groups, const Exchange& exchange, std::int64_t global_batch, Shares shares) {
  const std::vector<const Machine*> members = members_of(groups);
  const std::vector<Pace> paces = paces_of(members);
  Step step;
  step.global_batch = global_batch;
  step.batch_sizes = split(paces, global_batch, shares);
  step.compute_seconds = expected_compute(paces, step.batch_sizes);
  step.exchange_seconds =
      copying_seconds(members, exchange.gradient_bytes) + exposed_exchange(members, exchange, step.compute_seconds);
  for (const Machine* const machine : members) {
    step.update_seconds = std::max(step.update_seconds, machine->update_seconds);
  }
  return step;
}

double samples_per_second_alone(const Machine& machine, std::int64_t batch) {
  return static_cast<double>(batch) / (machine.curve.seconds(static_cast<double>(batch)) + machine.update_seconds);
}

}  // namespace isochron::plan
