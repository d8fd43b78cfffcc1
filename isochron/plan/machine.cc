#include "isochron/plan/machine.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace isochron::plan {
namespace {

/// Time for a batch with what its samples' preparation adds.
double whole_seconds(double compute, double prepare, bool aside) {
  return aside ? std::max(compute, prepare) : compute + prepare;
}

}  // namespace

Machine make_machine(const Profile& profile, double speed, bool prepares_aside) {
  const Curve compute = profile.curve();
  std::vector<Curve::Point> points;
  points.reserve(profile.points.size());
  for (const ProfilePoint& point : profile.points) {
    const auto batch = static_cast<double>(point.batch);
    const double seconds = whole_seconds(compute.seconds(batch), profile.prepare_seconds * batch, prepares_aside);
    points.push_back({.batch = batch, .seconds = seconds / speed});
  }
  Machine machine;
  machine.name = profile.machine;
  machine.curve = Curve::table(std::move(points));
  machine.update_seconds = profile.update_seconds / speed;
  machine.copy_seconds = profile.copy_seconds / speed;
  machine.noise = profile.noise();
  machine.measured = profile.largest_batch();
  return machine;
}

bool has_spare_core(const Profile& profile) {
  return profile.device != "cpu" || profile.cores >= static_cast<double>(profile.threads) + 1.0;
}

std::vector<Group> emulated_machines(const sim::ClusterSpec& cluster, const Profile& profile) {
  if (!cluster.changes.empty()) {
    throw std::invalid_argument("cluster is \"" + cluster.name + "\", which changes; permitted: one that does not");
  }
  std::vector<Group> groups;
  groups.reserve(cluster.workers.size());
  for (const sim::WorkerSpec& worker : cluster.workers) {
    if (worker.absent) {
      throw std::invalid_argument("worker \"" + worker.name + "\" is absent; permitted: workers that are there");
    }
    Machine machine = make_machine(profile, worker.cores, /*prepares_aside=*/false);
    machine.name = worker.name;
    machine.noise = std::hypot(machine.noise, worker.noise.sigma);
    machine.min_batch = worker.min_batch;
    machine.max_batch = worker.max_batch;
    machine.granularity = worker.granularity;
    machine.link = worker.link;
    groups.push_back({.machine = std::move(machine)});
  }
  return groups;
}

std::int64_t count_machines(const std::vector<Group>& groups) {
  std::int64_t count = 0;
  for (const Group& group : groups) {
    count += group.count;
  }
  return count;
}

}  // namespace isochron::plan
