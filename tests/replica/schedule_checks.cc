// What must hold after every transition of a schedule, and the shortest prefix of one in which it does not.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/replica/schedule.h"

namespace isochron {
namespace {

constexpr std::int64_t kEverything = std::numeric_limits<std::int64_t>::max();

}  // namespace

bool same_state(const State& left, const State& right) {
  const auto same_number = [](double one, double other) {
    return one == other || (std::isnan(one) && std::isnan(other));
  };
  const auto same_field = [&](const auto& one, const auto& other) {
    return one.first == other.first && std::ranges::equal(one.second, other.second, same_number);
  };
  return left.words == right.words && std::ranges::equal(left.numbers, right.numbers, same_field);
}

void Schedule::check_plan(const Replica& replica, const StepPlan& plan) const {
  std::int64_t next = plan.position;
  for (const Interval& slice : plan.slices) {
    require(slice.first == next && slice.size() >= 0, "slices leave a gap");
    next = slice.last;
  }
  require(next - plan.position == plan.step_size, "slices do not add up to the step");
  const auto& sizes = plan.decision.batch_sizes;
  const std::int64_t units = replica.units_per_sample();
  require(
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == options_.global_batch * units,
      "batch sizes do not add up to B");
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const Worker& worker = replica.workers()[k];
    require(sizes[k] >= worker.min_batch && sizes[k] <= worker.max_batch, "a batch is out of its bounds");
  }
  next = plan.mine.first;
  const std::int64_t most = replica.workers()[static_cast<std::size_t>(replica.rank())].max_batch;
  for (const Interval& part : plan.parts()) {
    require(part.first == next && part.size() > 0, "local steps leave a gap");
    require((part.size() - 1) * units < most, "a local step is larger than memory permits");
    next = part.last;
  }
  require(next == plan.mine.last, "local steps do not add up to the share");
  require(plan.digest == nodes_.front()->replica.plan_under_way().digest, "replicas disagree on the step");
}

// `whole`: now and then after something has happened, and at the end. Otherwise the digest of the next plan shows most.
void Schedule::check_equal(bool whole) const {
  if (over_) {
    return;
  }
  const Node& first = *nodes_.front();
  const State state = whole ? first.replica.state() : State{};
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    const Node& node = *nodes_[rank];
    require(node.replica.rank() == static_cast<int>(rank), "a rank is wrong");
    require(!whole || same_state(node.replica.state(), state), "the states differ");
    require(node.model == first.model, "the models differ");
    require(node.replica.workers().size() == nodes_.size(), "the roster is not those who are there");
  }
  for (const auto& [which, count] : first.model.uses) {
    require(count == 1, "sample " + text(which.second) + " of epoch " + text(which.first) + " was used twice");
  }
}

// A job ends if the bounds of its workers, or what memory permits, cannot hold B, and for no other reason.
void Schedule::check_refusal(const Replica& replica, const std::string& words) const {
  std::int64_t least = 0;
  std::int64_t most = 0;
  for (const Worker& worker : replica.members()) {
    least += worker.min_batch;
    most += worker.max_batch;
  }
  const bool room = least <= options_.global_batch && options_.global_batch <= most;
  require((!room || memory_ran_out_) && words.find("is there twice") == std::string::npos, words);
}

// Checks every finished epoch.
void Schedule::check_epochs() const {
  std::map<std::int64_t, std::int64_t> used;
  for (const auto& [which, count] : nodes_.front()->model.uses) {
    ++used[which.first];
  }
  const bool drops = options_.last_batch == LastBatch::kDrop;
  const std::int64_t expected = drops ? dataset_size_ / options_.global_batch * options_.global_batch : dataset_size_;
  for (std::int64_t epoch = 0; epoch < nodes_.front()->replica.epoch(); ++epoch) {
    require(used[epoch] == expected || over_, "epoch " + text(epoch) + " used " + text(used[epoch]) + " samples");
  }
}

std::string failure_of_schedule(std::uint64_t seed, Sabotage sabotage) {
  const auto attempt = [&](std::int64_t limit, std::int64_t& choices, std::string& trace) -> std::string {
    Schedule schedule(seed, limit, sabotage);
    std::string failure;
    try {
      schedule.run();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    choices = schedule.choices();
    trace.clear();
    for (const std::string& line : schedule.trace()) {
      trace += "\n  " + line;
    }
    return failure;
  };
  std::int64_t choices = 0;
  std::string trace;
  std::string failure = attempt(kEverything, choices, trace);
  if (failure.empty()) {
    return failure;
  }
  const std::int64_t most = choices;
  for (std::int64_t limit = 0; limit <= most; ++limit) {
    if (std::string shorter = attempt(limit, choices, trace); !shorter.empty()) {
      return shorter + "\nin Schedule(" + std::to_string(seed) + ", " + std::to_string(limit) + ").run():" + trace;
    }
  }
  return failure;
}

}  // namespace isochron
