// What unequal shares gain in a run: how many times as fast it is as with equal shares, and as the best split would be,
// from nothing but the records of its steps. O(workers) per step. Not thread-safe.
//
// A worker's time is taken to be s_k (overhead + b): the part of a step that does not depend on the batch is counted in
// samples, the same for all workers of a kind. The scale s_k and the noise come from its last steps; the overhead from
// moves of the batch size, which weigh candidates as core/curve/shape_learner.h does, but more of them, and the mean
// over the candidates counts rather than the most linear: a split only needs the order of workers, a gain the ratio of
// times. Both steps, with the shares as they are and with others, are then speedup.h's, so that what the model leaves
// out concerns both. A probe (PyTorch's watch) may say the overhead of a worker instead.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/core/predict/speedup.h"
#include "isochron/core/trace/run_log.h"

namespace isochron {

class ShareGain {
 public:
  /// Times as fast as with equal shares; kUnknown if too little is known: fewer than two workers or kFewest steps,
  /// times that do not follow the batch (samples of unequal cost), or a run that is not in step.
  struct Estimate {
    double now = kUnknown;   // the run, by its last steps
    double best = kUnknown;  // the best split of the same batch; no more than if nobody had waited in those steps
  };

  static constexpr std::size_t kFewest = 8;

  /// `global_batch` > 0; `workers` of the header, whose kinds are asked.
  ShareGain(std::int64_t global_batch, const std::vector<RunHeader::Member>& workers);

  void add(const StepRecord& record);
  /// The share of the worker's time at its present batch that does not depend on the batch, 0 to 1, as it was probed.
  void set_fixed_share(WorkerId worker, double share);

  [[nodiscard]] Estimate estimate() const;
  /// Every worker's curve and noise, in the order of the last step; empty if too little is known.
  [[nodiscard]] std::vector<Pace> paces() const;
  /// The workers of the last step.
  [[nodiscard]] const std::vector<WorkerStep>& workers() const { return last_; }
  /// The largest batch that the worker has had; 0: none.
  [[nodiscard]] std::int64_t largest_batch(WorkerId worker) const;
  /// What a step takes beyond the longest computing, as a median of the last ones.
  [[nodiscard]] double rest_seconds() const;

 private:
  static constexpr std::size_t kRecent = 32;
  static constexpr std::size_t kMoves = 64;

  struct Move {
    double before = 0.0;  // batch
    double after = 0.0;
    double log_time_change = 0.0;
  };
  struct Track {
    std::array<Curve::Point, kRecent> recent;
    std::size_t seen = 0;
    double largest = 0.0;     // batch
    double noise = 0.0025;    // variance of log time; 5 % until better is known
    std::vector<Move> moves;  // the last ones
    double fixed_share = kUnknown;
  };

  void observe(Track& track, double batch, double seconds);
  [[nodiscard]] std::map<std::string_view, double> overheads() const;
  [[nodiscard]] Pace pace(const Track& track, double overhead) const;
  [[nodiscard]] const std::string& kind_of(WorkerId worker) const;

  std::int64_t global_batch_;
  double typical_batch_;
  std::map<WorkerId, std::string> kinds_;
  std::map<WorkerId, Track> tracks_;
  std::vector<WorkerStep> last_;         // the workers of the last step
  std::array<double, kRecent> rests_{};  // of the last steps: their seconds beyond the longest computing
  std::array<double, kRecent> used_{};   // of the same: their utilization
  std::size_t steps_ = 0;
};

}  // namespace isochron
