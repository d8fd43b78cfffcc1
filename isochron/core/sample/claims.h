// Who works on which positions of an epoch when nobody waits for anybody: positions are claimed in order, and what a
// lost worker had claimed is claimed again before anything new.
//
// A position is in one of four places: not claimed yet, given back, held by one worker, or used. So each is used once,
// whatever comes and goes. A worker holds one claim at a time. O(log K) per call. Not thread-safe. A call about a claim
// that is not held is a defect of the caller (InvariantError).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "isochron/core/sample/interval.h"
#include "isochron/core/worker.h"

namespace isochron {

class ClaimPool {
 public:
  /// Positions from `first` on; nothing can be claimed before open().
  explicit ClaimPool(std::int64_t first = 0) : next_(first), end_(first) {}

  /// Positions up to `end`, one past the last, may be claimed from now on.
  void open(std::int64_t end);
  /// Nothing new may be claimed from now on; what is given back still may.
  void close() { end_ = next_; }

  /// At most `most` positions, 1 or more: the rest of what was given back first, then the next in order. Empty if there
  /// are none at present.
  Interval claim(WorkerId worker, std::int64_t most);
  /// The claim's samples are used.
  Interval finish(WorkerId worker);
  /// They were not: the worker is lost, or could not compute them. Nothing happens if it holds none.
  void give_back(WorkerId worker);
  /// Positions before the first one that are to be used all the same, and by whom, if somebody is at them.
  void give_back(const Interval& positions);
  void hold(WorkerId worker, const Interval& positions);

  /// Nobody can claim anything at present.
  [[nodiscard]] bool exhausted() const { return returned_.empty() && next_ == end_; }
  /// Somebody is at work on a claim.
  [[nodiscard]] bool any_held() const { return !held_.empty(); }
  /// All that was opened is used.
  [[nodiscard]] bool done() const { return exhausted() && !any_held(); }
  /// Positions that may be claimed at present.
  [[nodiscard]] std::int64_t left() const;
  /// The first position that was never claimed.
  [[nodiscard]] std::int64_t next() const { return next_; }

 private:
  std::int64_t next_;
  std::int64_t end_;
  std::deque<Interval> returned_;  // none is empty
  std::map<WorkerId, Interval> held_;
};

}  // namespace isochron
