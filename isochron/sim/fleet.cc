#include "isochron/sim/fleet.h"

#include <algorithm>

namespace isochron::sim {
namespace {

double slowdown_at(const Interference& interference, std::int64_t step) {
  const std::int64_t cycle = interference.on + interference.off;
  if (cycle == 0) {
    return 1.0;
  }
  const std::int64_t position = (step % cycle + interference.phase % cycle) % cycle;
  return position < interference.on ? interference.slowdown : 1.0;
}

}  // namespace

Fleet::Fleet(const ClusterSpec& cluster, std::uint64_t seed) : cluster_(&cluster), seed_(seed) {
  machines_.reserve(cluster.workers.size());
  for (std::size_t i = 0; i < cluster.workers.size(); ++i) {
    const WorkerSpec& worker = cluster.workers[i];
    machines_.push_back(
        {.cores = worker.cores, .most_cores = worker.cores, .noise = NoiseProcess(worker.noise, seed, i)});
    if (!worker.absent) {
      join(i);
    }
  }
  for (const Change& change : cluster.changes) {
    for (std::size_t i = 0; i < machines_.size(); ++i) {
      if (change.cores && (change.worker == "*" || change.worker == cluster.workers[i].name)) {
        machines_[i].most_cores = std::max(machines_[i].most_cores, *change.cores);
      }
    }
  }
}

std::vector<Worker> Fleet::roster(bool nominal_weights) const {
  std::vector<Worker> workers;
  workers.reserve(members_.size());
  for (const Member& member : members_) {
    const WorkerSpec& worker = cluster_->workers[member.index];
    workers.push_back(
        {.id = member.id,
         .kind = worker.kind,
         .weight = nominal_weights ? machines_[member.index].cores : 0.0,
         .min_batch = worker.min_batch,
         .max_batch = worker.max_batch,
         .granularity = worker.granularity,
         .name = worker.name});
  }
  return workers;
}

bool Fleet::join(std::size_t worker) {
  if (std::ranges::find(members_, worker, &Member::index) != members_.end()) {
    return false;
  }
  Machine& machine = machines_[worker];
  machine.id = next_id_++;
  machine.sizes.clear();
  members_.push_back({.index = worker, .id = *machine.id});
  return true;
}

bool Fleet::leave(std::size_t worker) {
  return std::erase_if(members_, [&](const Member& member) { return member.index == worker; }) > 0;
}

void Fleet::advance(std::size_t worker, std::int64_t step) {
  Machine& machine = machines_[worker];
  machine.noise.advance(step);
  machine.slowdown = slowdown_at(cluster_->workers[worker].interference, step);
  machine.common = common_factor(cluster_->common_noise, seed_, step);
}

double Fleet::seconds_of_amount(std::size_t worker, double amount) const {
  if (amount == 0.0) {
    return 0.0;
  }
  const WorkerSpec& spec = cluster_->workers[worker];
  const Machine& machine = machines_[worker];
  const double samples = spec.overhead + std::max(amount, spec.plateau);
  return samples / speed(worker) * machine.noise.surprise() * machine.common;
}

double Fleet::speed(std::size_t worker) const {
  return effective_cores(worker) / (cluster_->sample_seconds * machines_[worker].noise.known());
}

double Fleet::sigma(std::size_t worker) const {
  const Noise& noise = cluster_->workers[worker].noise;
  return noise.autocorrelation > 0.0 ? 0.0 : noise.sigma;
}

double Fleet::effective_cores(std::size_t worker) const {
  return machines_[worker].cores / machines_[worker].slowdown;
}

double Fleet::cpu_share(std::size_t worker) const {
  return effective_cores(worker) / machines_[worker].most_cores;
}

void Fleet::true_slots(std::vector<Slot>& slots) const {
  slots.clear();
  for (const Member& member : members_) {
    const WorkerSpec& worker = cluster_->workers[member.index];
    const double sample = 1.0 / speed(member.index);
    slots.push_back(
        {.curve = Curve::saturating((worker.overhead + worker.plateau) * sample, worker.overhead * sample, sample),
         .min_batch = worker.min_batch,
         .max_batch = worker.max_batch,
         .granularity = worker.granularity});
  }
}

}  // namespace isochron::sim
