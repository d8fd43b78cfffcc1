// LB-BSP for GPU clusters: no model of time at all, but moves that are tried out.
//
//   a) Over a window of steps with one split, average every worker's time.
//   b) The leader has the least mean time of those with room to grow: below their max_batch, and with memory for it.
//      The straggler has the largest mean time of those above their min_batch.
//   c) If that makes a worker undo its last move, the step was too large: halve it and lengthen the window.
//   d) Move a step's worth of samples from the straggler to the leader, and begin a new window.
//   e) Once a step of one unit (the coarser granularity of the two) still oscillates, stop; the last move is taken back
//      if it made the slowest worker slower.
//
// The paper leaves open, and this decides: the first window is 5 steps and grows by 5 at every oscillation; the first
// step is a quarter of the mean batch B / K; memory use is taken as proportional to the batch; an oscillation is judged
// among moves of the present step only; it starts again, with the first step and window, once straggler time / leader
// time is 20 % above its value at the last oscillation, since a machine must have changed. Workers without a valid
// report in a window sit it out. After a change of the roster newcomers get the median batch of their kind and it
// starts again. O(K) a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isochron/core/policy/policy.h"

namespace isochron {

struct LbBspGpuOptions {
  std::int64_t window = 5;    // steps in the first observation window, 1 or more
  double step = 0.25;         // first move, as a share of the mean batch, 0..1; at least one sample
  double memory_limit = 1.0;  // share of memory that a batch may grow into, 0..1
  double restart = 0.2;       // growth of the imbalance that makes it start again, 0 or more
};

class LbBspGpu final : public Policy {
 public:
  explicit LbBspGpu(const LbBspGpuOptions& options) : options_(options) {}

  Proposal start(const Roster& roster, std::span<const std::int64_t> current) override;
  Proposal observe(
      const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) override;
  void exchange(StateExchange& state) override;

 private:
  /// Places in the roster and mean times in a window.
  struct Pair {
    std::size_t straggler = 0;
    std::size_t leader = 0;
    double straggler_seconds = 0.0;
    double leader_seconds = 0.0;
  };
  struct Move {
    std::size_t from = 0;
    std::size_t to = 0;
    std::int64_t samples = 0;  // 0: none
  };

  /// What moves between the two are multiples of.
  static std::int64_t unit_of(const Roster& roster, const Pair& pair);
  static Proposal shifted(std::span<const std::int64_t> current, const Move& move, std::string words);
  static std::string words_of(const Roster& roster, const Move& move);

  void begin(const Roster& roster);
  void begin_window(std::size_t workers);
  void gather(std::span<const Reading> readings);
  [[nodiscard]] std::optional<Pair> find_pair(const Roster& roster, std::span<const std::int64_t> current) const;
  /// Samples by which a batch may grow.
  [[nodiscard]] std::int64_t headroom(const Roster& roster, std::size_t place, std::int64_t batch) const;
  [[nodiscard]] bool oscillates(const Pair& pair) const;
  Proposal decide(const Roster& roster, const Pair& pair, std::span<const std::int64_t> current);
  Proposal settle(const Roster& roster, const Pair& pair, std::span<const std::int64_t> current);
  Proposal move(const Roster& roster, const Pair& pair, std::span<const std::int64_t> current);

  LbBspGpuOptions options_;
  std::int64_t step_ = 1;    // samples
  std::int64_t window_ = 1;  // steps
  std::int64_t seen_ = 0;    // steps of the present window
  bool settled_ = false;
  double imbalance_ = 0.0;  // straggler time / leader time at the last oscillation; 0: none yet
  Move last_;
  double seconds_before_ = 0.0;  // the straggler's mean time before the last move
  // One entry per worker.
  std::vector<double> seconds_;           // sum over the window
  std::vector<std::int64_t> readings_;    // in that sum
  std::vector<double> memory_;            // share in use, as last reported
  std::vector<std::int64_t> directions_;  // of the last move of the present step: -1, 0 for none, 1
};

}  // namespace isochron
