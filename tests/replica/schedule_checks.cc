// What must hold after every transition of a schedule, and the shortest prefix of one in which it does not.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

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
  check_granularities(replica, sizes);
  next = plan.mine.first;
  const std::int64_t most = replica.workers()[static_cast<std::size_t>(replica.rank())].max_batch;
  for (const Interval& part : plan.parts()) {
    require(part.first == next && part.size() > 0, "local steps leave a gap");
    require(by_cost_ || (part.size() - 1) * units < most, "a local step is larger than memory permits");
    next = part.last;
  }
  require(next == plan.mine.last, "local steps do not add up to the share");
  require(plan.digest == nodes_.front()->replica.plan_under_way().digest, "replicas disagree on the step");
  if (by_cost_) {
    check_dealt(replica, plan);
  }
}

/// What the smallest granularity does not divide of B goes to one worker of those that have it.
std::pair<std::int64_t, std::int64_t> Schedule::smallest_and_remainder(std::span<const Worker> workers) const {
  const std::int64_t smallest = std::ranges::min(workers, {}, &Worker::granularity).granularity;
  return {smallest, options_.global_batch % smallest};
}

void Schedule::check_granularities(const Replica& replica, std::span<const std::int64_t> sizes) const {
  if (!granular_) {
    return;
  }
  const auto [smallest, remainder] = smallest_and_remainder(replica.workers());
  std::int64_t odd = 0;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const std::int64_t unit = replica.workers()[k].granularity;
    if (const std::int64_t rest = sizes[k] % unit; rest != 0) {
      require(unit == smallest && rest == remainder, "a batch is no multiple of the worker's granularity");
      ++odd;
    }
  }
  require(odd == (remainder > 0 ? 1 : 0), "more than one worker takes the remainder");
}

void Schedule::check_dealt(const Replica& replica, const StepPlan& plan) const {
  std::vector<std::int64_t> dealt = plan.dealt;
  std::ranges::sort(dealt);
  require(std::ssize(dealt) == plan.step_size, "the deal is not of the step's samples");
  for (std::size_t i = 0; i < dealt.size(); ++i) {
    require(dealt[i] == plan.position + static_cast<std::int64_t>(i), "a sample is dealt twice or not at all");
  }
  for (std::size_t k = 0; k < plan.slices.size(); ++k) {
    require(plan.slices[k].size() <= replica.members()[k].max_batch, "a share is larger than its worker permits");
    require(plan.shares[k].samples == plan.slices[k].size(), "a share is not its slice");
  }
  const std::vector<std::int64_t> mine = plan.positions(plan.mine);
  require(std::ranges::is_sorted(mine), "a share is not in the data's order");
  require(arriving_ || replica.foresee(plan.epoch, plan.position) == mine, "a share is not what was foreseen");
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
    const Ledger& ledger = node.replica.ledger();
    const std::int64_t position = node.replica.position();
    require(ledger.duplicates().empty(), "the ledger has a sample twice");
    require(position == 0 || ledger.used() == position, "the ledger is not where the job is in its data");
  }
  for (const auto& [which, count] : first.model.uses) {
    require(count == 1, "sample " + text(which.second) + " of epoch " + text(which.first.second) + " was used twice");
  }
}

/// Whether bounds and granularities permit some split of B.
bool Schedule::has_room(const Replica& replica) const {
  const std::vector<Worker>& workers = replica.members();
  const auto [smallest, remainder] = smallest_and_remainder(workers);
  const auto whole = static_cast<std::size_t>(options_.global_batch);
  // Sums of multiples, and of multiples and the remainder.
  std::array<std::vector<bool>, 2> sums{std::vector<bool>(whole + 1), std::vector<bool>(whole + 1)};
  sums[0][0] = true;
  for (const Worker& worker : workers) {
    std::array<std::vector<bool>, 2> with{std::vector<bool>(whole + 1), std::vector<bool>(whole + 1)};
    const auto take = [&](std::size_t from, std::size_t to, std::int64_t multiple, std::int64_t more) {
      const std::int64_t batch = multiple + more;
      const bool permitted = batch <= worker.max_batch && (by_cost_ || multiple >= worker.min_batch);
      for (auto sum = static_cast<std::size_t>(batch); sum <= whole && permitted; ++sum) {
        with[to][sum] = with[to][sum] || sums[from][sum - static_cast<std::size_t>(batch)];
      }
    };
    for (std::int64_t batch = 0; batch <= options_.global_batch; batch += worker.granularity) {
      take(0, 0, batch, 0);
      take(1, 1, batch, 0);
      if (worker.granularity == smallest) {
        take(0, 1, batch, remainder);
      }
    }
    sums = std::move(with);
  }
  return sums[1][whole];
}

// A job ends if the bounds of its workers, or what memory permits, cannot hold B, and for no other reason.
void Schedule::check_refusal(const Replica& replica, const std::string& words) const {
  const bool explained = !has_room(replica) || memory_ran_out_;
  require(explained && words.find("is there twice") == std::string::npos, words);
}

// Checks every finished epoch.
void Schedule::check_epochs() const {
  const TinyModel& model = nodes_.front()->model;
  std::map<DataEpoch, std::int64_t> used;
  for (const auto& [which, count] : model.uses) {
    ++used[which.first];
  }
  for (std::size_t which = 0; which < data_.size(); ++which) {
    const std::int64_t size = data_[which].size;
    const std::int64_t whole = options_.last_batch == LastBatch::kDrop ? size - size % options_.global_batch : size;
    for (std::int64_t epoch = 0; epoch < finished_epochs(which); ++epoch) {
      const auto early = model.left_early.find({which, epoch});
      const std::int64_t expected = early == model.left_early.end() ? whole : early->second;
      require(
          used[{which, epoch}] == expected || over_,
          "epoch " + text(epoch) + " used " + text(used[{which, epoch}]) + " samples of " + text(expected));
    }
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
