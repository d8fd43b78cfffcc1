#include "isochron/core/staleness/clock_table.h"

#include <limits>
#include <stdexcept>
#include <string>

#include "isochron/core/error.h"

namespace isochron {
namespace {

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

auto& member_of(auto& members, WorkerId worker) {
  const auto found = members.find(worker);
  ISO_CHECK(found != members.end(), "worker " + std::to_string(worker) + " is not in the clock table");
  return found->second;
}

}  // namespace

ClockTable::ClockTable(std::optional<std::int64_t> bound, std::int64_t first)
    : bound_(bound.value_or(kUnbounded)), floor_(first) {
  if (bound_ < 0) {
    throw std::invalid_argument("staleness bound is " + std::to_string(bound_) + "; permitted: 0 or more");
  }
}

void ClockTable::join(WorkerId worker) {
  const std::int64_t clock = slowest();
  const bool added = members_.emplace(worker, Member{.clock = clock, .seen = updates_}).second;
  ISO_CHECK(added, "worker " + std::to_string(worker) + " joined twice");
  by_clock_.emplace(clock, worker);
}

std::vector<WorkerId> ClockTable::leave(WorkerId worker) {
  const std::int64_t before = slowest();
  floor_ = clock(worker);
  by_clock_.erase({floor_, worker});
  members_.erase(worker);
  return between(limit(before), limit(slowest()));
}

bool ClockTable::may_go_on(WorkerId worker) const {
  return clock(worker) <= limit(slowest());
}

std::vector<WorkerId> ClockTable::finish(WorkerId worker) {
  ISO_CHECK(may_go_on(worker), "worker " + std::to_string(worker) + " finished a step that it had to wait for");
  const std::int64_t before = slowest();
  std::int64_t& clock = member_of(members_, worker).clock;
  auto place = by_clock_.extract({clock, worker});
  place.value().first = ++clock;
  by_clock_.insert(std::move(place));

  std::vector<WorkerId> released = between(limit(before), limit(slowest()));
  if (may_go_on(worker)) {
    std::erase(released, worker);
    released.insert(released.begin(), worker);
  }
  return released;
}

void ClockTable::pull(WorkerId worker) {
  member_of(members_, worker).seen = updates_;
}

std::int64_t ClockTable::push(WorkerId worker) {
  std::int64_t& seen = member_of(members_, worker).seen;
  ++updates_;
  ++seen;
  return updates_ - seen;
}

std::int64_t ClockTable::clock(WorkerId worker) const {
  return member_of(members_, worker).clock;
}

std::int64_t ClockTable::slowest() const {
  return by_clock_.empty() ? floor_ : by_clock_.begin()->first;
}

std::vector<WorkerId> ClockTable::waiting() const {
  return between(limit(slowest()), kUnbounded);
}

void ClockTable::exchange(StateExchange& state) {
  std::vector<WorkerId> ids;
  std::vector<std::int64_t> clocks;
  std::vector<std::int64_t> seen;
  for (const auto& [id, member] : members_) {
    ids.push_back(id);
    clocks.push_back(member.clock);
    seen.push_back(member.seen);
  }
  state.field("workers", ids);
  state.field("clocks", clocks);
  state.field("seen", seen);
  state.field("floor", floor_);
  state.field("updates", updates_);
  if (!state.restoring()) {
    return;
  }
  if (clocks.size() != ids.size() || seen.size() != ids.size()) {
    throw std::invalid_argument("the state of the clock table has lists of unequal lengths; permitted: one per worker");
  }
  members_.clear();
  by_clock_.clear();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    members_[ids[i]] = {.clock = clocks[i], .seen = seen[i]};
    by_clock_.emplace(clocks[i], ids[i]);
  }
  if (members_.size() != ids.size()) {
    throw std::invalid_argument("the state of the clock table has a worker twice; permitted: once");
  }
}

std::int64_t ClockTable::limit(std::int64_t slowest) const {
  return bound_ > kUnbounded - slowest ? kUnbounded : slowest + bound_;
}

std::vector<WorkerId> ClockTable::between(std::int64_t above, std::int64_t up_to) const {
  std::vector<WorkerId> workers;
  const auto first = by_clock_.upper_bound({above, std::numeric_limits<WorkerId>::max()});
  for (auto place = first; place != by_clock_.end() && place->first <= up_to; ++place) {
    workers.push_back(place->second);
  }
  return workers;
}

}  // namespace isochron
