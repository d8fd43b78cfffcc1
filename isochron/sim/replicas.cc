#include "isochron/sim/replicas.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "isochron/core/error.h"

namespace isochron::sim {
Replicas::Replicas(JobSettings settings, std::span<const Worker> workers, std::function<void(Replica&)> open, bool each)
    : settings_(std::move(settings)), open_(std::move(open)), each_(each) {
  for (int rank = 0; rank < (each ? std::ssize(workers) : 1); ++rank) {
    replicas_.emplace_back(settings_, std::vector(workers.begin(), workers.end()), rank);
    open_(replicas_.back());
  }
}

const StepPlan& Replicas::plan(std::int64_t from_stream) {
  for (Replica& replica : replicas_) {
    (void)replica.plan(from_stream);
  }
  return any().plan_under_way();
}

const StepPlan& Replicas::plan_parts(std::span<const std::int64_t> samples) {
  for (Replica& replica : replicas_) {
    (void)replica.plan_parts(samples);
  }
  return any().plan_under_way();
}

StepRecord Replicas::complete(std::span<StepReport> measured, double finished) {
  for (std::size_t rank = 0; rank < replicas_.size(); ++rank) {
    measured[rank] = replicas_[rank].report(measured[rank]);
  }
  const StepPlan& plan = any().plan_under_way();
  for (std::size_t rank = replicas_.size(); rank < measured.size(); ++rank) {
    measured[rank].batch = plan.slices[rank].size();
    measured[rank].items = static_cast<double>(measured[rank].batch);
    measured[rank].digest = plan.digest;
  }
  for (std::size_t rank = 1; rank < replicas_.size(); ++rank) {
    (void)replicas_[rank].complete(measured, finished, finished);
  }
  return replicas_.front().complete(measured, finished, finished).record;
}

void Replicas::end_epoch() {
  std::ranges::for_each(replicas_, &Replica::end_epoch);
}

void Replicas::come_together(std::span<const Worker> workers) {
  const std::vector<Worker> members = any().members();
  const auto rank_of = [&](const Worker& worker) {
    return static_cast<std::size_t>(std::ranges::find(members, worker.id, &Worker::id) - members.begin());
  };
  const auto known = [&](const Worker& worker) { return rank_of(worker) < members.size(); };
  Roster{.workers = {workers.begin(), workers.end()}, .global_batch = settings_.global_batch}.validate();
  if (std::ranges::none_of(workers, known)) {
    throw std::invalid_argument("all workers of the job are lost at once; permitted: at least one that stays");
  }
  if (any().phase() != Replica::Phase::kBetween) {
    std::ranges::for_each(replicas_, &Replica::abandon);
  }
  std::vector<ProgressReport> reports;
  std::vector<Replica> there;
  for (const Worker& worker : workers) {
    std::optional<Replica> newcomer;
    if (!known(worker)) {
      newcomer.emplace(Replica::newcomer(settings_, worker));
    }
    Replica& own = newcomer ? *newcomer : replicas_[each_ ? rank_of(worker) : 0];
    reports.push_back(own.progress(0.0));
    reports.back().self = newcomer ? own.members().front() : members[rank_of(worker)];
    reports.back().self.weight = worker.weight;  // as it is now
    if (each_) {
      there.push_back(std::move(own));
    }
  }
  if (each_) {
    replicas_ = std::move(there);
  }
  const Settlement settlement = settle(reports);
  ISO_CHECK(std::ranges::equal(settlement.workers, workers, {}, &Worker::id, &Worker::id), "ids that nobody gave");
  adopt(settlement);
}

void Replicas::adopt(const Settlement& settlement) {
  for (const int rank : settlement.behind) {
    if (each_) {
      Replica& newcomer = replicas_[static_cast<std::size_t>(rank)];
      open_(newcomer);
      newcomer.take_over(replicas_[static_cast<std::size_t>(settlement.leader)].state());
    }
  }
  for (std::size_t rank = 0; rank < replicas_.size(); ++rank) {
    (void)replicas_[rank].adopt(settlement, static_cast<int>(rank), 0.0);
  }
}

}  // namespace isochron::sim
