// The true state of a cluster's workers while a run goes on: who is there, how fast, and how long a batch takes.
//
// Workers are numbered as in the specification. Nothing here knows a policy.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "isochron/core/allocate/allocate.h"
#include "isochron/core/worker.h"
#include "isochron/sim/cluster.h"
#include "isochron/sim/noise.h"

namespace isochron::sim {

/// A worker that takes part: its number in the specification and its id in this life. Ids count those who come, as in
/// a real job.
struct Member {
  std::size_t index = 0;
  WorkerId id = 0;
};

class Fleet {
 public:
  /// `cluster` must be valid and outlive the fleet.
  Fleet(const ClusterSpec& cluster, std::uint64_t seed);

  /// In the order in which they came; the roster's order.
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  [[nodiscard]] std::vector<Worker> roster(bool nominal_weights) const;
  /// Whether it changed anything.
  bool join(std::size_t worker);
  bool leave(std::size_t worker);

  /// In the worker's present life, or its last one; none: it was never there.
  [[nodiscard]] std::optional<WorkerId> id(std::size_t worker) const { return machines_[worker].id; }

  void set_cores(std::size_t worker, double cores) { machines_[worker].cores = cores; }

  /// Moves a worker's random processes and interference on to `step`; never backwards.
  void advance(std::size_t worker, std::int64_t step);

  // All of the following are about the step last advanced to.

  /// Whether the worker has never computed a batch of this size, and that makes a difference to it.
  [[nodiscard]] bool is_cold(std::size_t worker, std::int64_t batch) const {
    return cluster_->workers[worker].cold_seconds > 0.0 && batch > 0 && !machines_[worker].sizes.contains(batch);
  }
  /// What a cold step with this batch takes on top of the time below.
  [[nodiscard]] double cold_seconds(std::size_t worker, std::int64_t batch) const {
    return is_cold(worker, batch) ? cluster_->workers[worker].cold_seconds : 0.0;
  }
  void note_computed(std::size_t worker, std::int64_t batch) { machines_[worker].sizes.insert(batch); }

  /// With noise.
  [[nodiscard]] double seconds(std::size_t worker, std::int64_t batch) const {
    return seconds_of_amount(worker, static_cast<double>(batch));
  }
  /// The same for what costs as much as so many samples.
  [[nodiscard]] double seconds_of_amount(std::size_t worker, double amount) const;
  /// Samples per second of a large batch, without what nobody can know.
  [[nodiscard]] double speed(std::size_t worker) const;
  /// Standard deviation of the logarithm of time that nobody can know, spikes aside.
  [[nodiscard]] double sigma(std::size_t worker) const;
  /// Cores over slowdown: the part of the speed that changes in steps, drift and noise aside.
  [[nodiscard]] double effective_cores(std::size_t worker) const;
  /// What a worker would report of its CPU: effective cores over the most it ever has.
  [[nodiscard]] double cpu_share(std::size_t worker) const;
  /// The members' true curves and bounds, as an oracle knows them: without what nobody can know.
  void true_slots(std::vector<Slot>& slots) const;

 private:
  struct Machine {
    std::optional<WorkerId> id;
    double cores = 0.0;
    double most_cores = 0.0;
    double slowdown = 1.0;
    double common = 1.0;
    std::set<std::int64_t> sizes;  // that it has computed
    NoiseProcess noise;
  };

  const ClusterSpec* cluster_;
  std::uint64_t seed_;
  std::vector<Machine> machines_;
  std::vector<Member> members_;
  WorkerId next_id_ = 0;
};

}  // namespace isochron::sim
