// The record of which positions of an epoch were used: it proves "each exactly once", or shows what was lost or
// doubled.
//
// It keeps intervals, not positions, and joins neighbours, so a run that goes as it should needs one interval however
// many samples it has used. The sampler's order is a permutation, so what holds for positions holds for samples.
// O(log n) per insertion into n intervals, amortised. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "isochron/core/sample/interval.h"
#include "isochron/core/state.h"
#include "isochron/core/worker.h"

namespace isochron {

/// Who used which positions.
struct Use {
  Interval positions;
  WorkerId worker = 0;

  bool operator==(const Use&) const = default;
  void exchange(StateExchange& state);
};

class Ledger {
 public:
  /// For an epoch of `size` positions, 0 .. 2^53. Throws std::invalid_argument on another size.
  explicit Ledger(std::int64_t size);

  /// Enters what a worker takes in the step under way; it counts once the step is committed.
  void stage(const Use& use);
  void commit();
  /// The step failed, so it did not happen.
  void discard() { staged_.clear(); }

  /// Adds what another ledger of the same epoch has committed; what both hold are duplicates by `worker`.
  void merge(const Ledger& other, WorkerId worker);

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int64_t used() const { return used_; }  // distinct positions
  /// Every position was used exactly once.
  [[nodiscard]] bool complete() const { return used_ == size_ && duplicates_.empty(); }
  [[nodiscard]] std::vector<Interval> intervals() const;  // used, in order, no two adjacent
  [[nodiscard]] std::vector<Interval> gaps() const;       // not used, in order
  /// What was used though it had been used before, in the order of entry.
  [[nodiscard]] const std::vector<Use>& duplicates() const { return duplicates_; }

  /// What is committed; a step under way is not part of it.
  void exchange(StateExchange& state);

 private:
  void record(const Use& use);

  std::int64_t size_;
  std::int64_t used_ = 0;
  std::map<std::int64_t, std::int64_t> last_by_first_;  // disjoint, no two adjacent
  std::vector<Use> duplicates_;
  std::vector<Use> staged_;
};

}  // namespace isochron
