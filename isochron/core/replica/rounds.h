// Local rounds, for networks on which an exchange in every step takes too long: a round is H global batches, of which
// every worker takes its dealt share in H local steps of its own optimizer; then the changes of the parameters are
// averaged, weighted by samples.
//
// A round is a step of the replica with H B samples. The split is decided for one local step, as a time over a batch,
// so that what is learned holds for any H; it is counted in units of 1 / 1024 of a sample, since a share of a round is
// H times finer than one of a step. All workers take equally many local steps, each of its own size, so that all end
// together and no worker's change is longer than another's; with H = 1 and plain SGD the average of the changes is the
// step of one process with the whole batch.
//
// H is given, or follows from what was measured: of a round of H local steps of c seconds and an exchange of e, the
// exchange is e / (e + H c), which is at most s if H >= e (1 - s) / (s c). O(K) a round. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/replica/step_report.h"
#include "isochron/core/sample/interval.h"
#include "isochron/core/state.h"
#include "isochron/core/telemetry.h"
#include "isochron/core/worker.h"

namespace isochron {

class Rounds {
 public:
  static constexpr std::int64_t kUnitsPerSample = 1024;
  static constexpr std::int64_t kMostSteps = 4096;  // of a round, where it is chosen

  /// `steps` is H, 0: chosen so that the exchange takes at most `network_share` of the time.
  Rounds(std::int64_t steps, double network_share) : given_(steps), network_share_(network_share) {}

  /// H of the coming round.
  [[nodiscard]] std::int64_t steps() const { return given_ > 0 ? given_ : chosen_; }
  /// Local steps of a round of so many samples, which is shorter at the end of an epoch.
  [[nodiscard]] static std::int64_t steps_of(std::int64_t samples, std::int64_t global_batch);

  /// A worker's bounds in units.
  [[nodiscard]] static Worker in_units(Worker worker);
  /// A share in as many parts of nearly equal size, the larger ones first; none is empty, so there may be fewer.
  [[nodiscard]] static std::vector<Interval> parts(const Interval& share, std::int64_t steps);
  /// What a round of `steps` local steps says of one of them.
  static void bring_to_step(StepTelemetry& telemetry, std::int64_t steps);

  /// Chooses H for the rounds after one of `steps` local steps: the slowest worker's time and exchange count.
  void observe(std::span<const StepReport> reports, std::int64_t steps);

  void exchange(StateExchange& state);

 private:
  std::int64_t given_;
  double network_share_;
  std::int64_t chosen_ = 1;
  double exchange_seconds_ = 0.0;  // of a round, smoothed; 0: unknown
  double step_seconds_ = 0.0;      // of a local step, smoothed; 0: unknown
};

}  // namespace isochron
