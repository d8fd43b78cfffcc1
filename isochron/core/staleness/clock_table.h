// The clock table of the asynchronous modes: who may go on, who waits, and how stale a push is.
//
// A worker's clock counts the steps it finished. Stale-synchronous (SSP, Ho et al. 2013): a worker may start a step
// while its clock is at most s ahead of the slowest worker's, so s = 0 is bulk-synchronous. Asynchronous (ASP): always.
// From this follows, whatever joins and leaves: a worker at work is at most s ahead, one that waits exactly s + 1.
//
// A pure state machine: the caller moves the messages. O(log K) per call, and O(1) more for each worker released.
// Not thread-safe. A call about a stranger, or one out of turn, is a defect of the caller (InvariantError).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "isochron/core/state.h"
#include "isochron/core/worker.h"

namespace isochron {

class ClockTable {
 public:
  /// `bound` is s; none: asynchronous. The first worker's clock begins at `first`. Throws std::invalid_argument on a
  /// negative bound.
  explicit ClockTable(std::optional<std::int64_t> bound, std::int64_t first = 0);

  /// A newcomer starts at the slowest clock, with the present parameters (as if it had pulled); it may go on at once.
  void join(WorkerId worker);
  /// At any moment, also in the middle of a step. The workers that may go on because of it, by clock, then id.
  std::vector<WorkerId> leave(WorkerId worker);

  /// Whether the worker may start its next step, or is in the middle of one.
  [[nodiscard]] bool may_go_on(WorkerId worker) const;
  /// A worker finished its step. Those that may go on because of it: itself first, if it may; then by clock and id.
  std::vector<WorkerId> finish(WorkerId worker);

  /// The worker has fetched the parameters.
  void pull(WorkerId worker);
  /// The worker's update is applied. Its staleness: the updates of others since the worker last pulled.
  std::int64_t push(WorkerId worker);

  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] std::int64_t clock(WorkerId worker) const;
  /// The least clock; of an empty table that of the last worker to leave.
  [[nodiscard]] std::int64_t slowest() const;
  /// Those that wait, by clock, then id. O(number of them).
  [[nodiscard]] std::vector<WorkerId> waiting() const;

  /// The bound is configuration, not state.
  void exchange(StateExchange& state);

 private:
  struct Member {
    std::int64_t clock = 0;
    std::int64_t seen = 0;  // updates the worker knows of: those up to its last pull, and its own
  };

  /// The highest clock that may go on while `slowest` is the least one.
  [[nodiscard]] std::int64_t limit(std::int64_t slowest) const;
  [[nodiscard]] std::vector<WorkerId> between(std::int64_t above, std::int64_t up_to) const;

  std::int64_t bound_;
  std::map<WorkerId, Member> members_;
  std::set<std::pair<std::int64_t, WorkerId>> by_clock_;
  std::int64_t floor_;        // where the first worker of an empty table starts
  std::int64_t updates_ = 0;  // pushes so far
};

}  // namespace isochron
