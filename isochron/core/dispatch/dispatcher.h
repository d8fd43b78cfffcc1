// Asynchronous training as a pure state machine: which worker computes which samples next, and who has to wait.
//
// It joins three parts: the clock table says who may start an iteration (ASP: everybody; SSP: whoever is at most s
// ahead of the slowest), the claim pool which samples are next, the controller how many of them a worker takes. The
// caller moves the messages and keeps the time.
//
//   a) a worker that is free calls ask();
//   b) take_orders() says who starts what;
//   c) finish() is for when its update is applied.
//
// With s = 0 iterations come in rounds that equal the steps of bulk-synchronous training: all samples of a round, B or
// what is left, are dealt when it begins, in proportion to the split. A round counts as a whole or not at all: when a
// worker is lost in the middle of one, the caller begins with a new dispatcher where the round began.
//
// A barrier is the moment when everything that was opened is used and all workers are free: the end of an epoch, or
// wherever the caller wants all to see the same parameters. Nobody waits for ever: whoever is refused is released when
// the slowest finishes or leaves. O(K) per call. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "isochron/core/policy/controller.h"
#include "isochron/core/sample/claims.h"
#include "isochron/core/staleness/clock_table.h"
#include "isochron/core/telemetry.h"

namespace isochron {

struct WorkOrder {
  WorkerId worker = 0;
  Interval positions;              // of the epoch
  std::int64_t iteration = 0;      // of this worker, from 0; with s = 0 the round
  std::int64_t lead = 0;           // iterations ahead of the slowest
  std::int64_t round_samples = 0;  // with s = 0: samples of the round, all workers together; else 0
};

class Dispatcher {
 public:
  /// `bound` is s; none: asynchronous. `claims`: of the epoch that is under way. Iterations are counted from `first`.
  Dispatcher(Controller controller, std::optional<std::int64_t> bound, ClaimPool claims, std::int64_t first = 0);

  /// Samples up to position `end` may be used.
  void open(std::int64_t end) { claims_.open(end); }
  /// The barrier comes as soon as what was begun is used.
  void close() { claims_.close(); }
  /// Other positions, such as those of the next epoch; at a barrier.
  void begin(ClaimPool claims);

  /// The worker is free.
  void ask(WorkerId worker);
  /// What can start now; those workers are no longer free.
  std::vector<WorkOrder> take_orders();
  /// The worker's update is applied; the samples are used. The policy learns once all have reported.
  Interval finish(WorkerId worker, const WorkerTelemetry& telemetry);
  /// The worker could not compute what it was told to; the samples go back.
  void give_up(WorkerId worker);
  /// A worker is lost; its samples go back. Throws std::invalid_argument if the others cannot hold the global batch,
  /// and Error with s = 0 in the middle of a round.
  void leave(WorkerId worker);

  /// What was finished counts: always, but with s = 0 not in the middle of a round.
  [[nodiscard]] bool settled() const { return !in_rounds() || !claims_.any_held(); }
  /// Everything that was opened is used, and all are free.
  [[nodiscard]] bool at_barrier() const;
  /// All have been told of the barrier; they ask again when it is over.
  void dismiss() { free_.clear(); }

  [[nodiscard]] const ClaimPool& claims() const { return claims_; }
  [[nodiscard]] const ClockTable& clocks() const { return clocks_; }
  [[nodiscard]] const Controller& controller() const { return controller_; }
  /// For those who know more than the policy; at a barrier.
  [[nodiscard]] Controller& controller() { return controller_; }

 private:
  [[nodiscard]] std::int64_t batch_of(WorkerId worker) const;
  [[nodiscard]] bool in_rounds() const { return bound_ == 0; }
  void begin_round();
  std::optional<WorkOrder> order_for(WorkerId worker);
  void observe_if_all_reported();

  Controller controller_;
  std::optional<std::int64_t> bound_;
  ClockTable clocks_;
  ClaimPool claims_;
  std::vector<WorkerId> free_;                   // in the order of asking
  std::map<WorkerId, WorkerTelemetry> reports_;  // since the last decision
  std::map<WorkerId, Interval> dealt_;           // of the round, not started yet
  std::int64_t round_ = -1;
  std::int64_t round_samples_ = 0;
};

}  // namespace isochron
