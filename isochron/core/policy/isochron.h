// `isochron`, our own policy: it learns every worker's time curve t_k(b) = s_k h_k(b) from the steps that happen
// anyway, and moves samples when the expected gain has paid for the move. docs/algorithms.md has the equations and the
// study.
//
// At every step:
//   a) shapes h: evidence from moves, pooled per kind (curve/shape_learner.h);
//   b) scales s: a bank of filters on log t - log h(b) (predict/level_bank.h), after what all workers share was taken
//   out
//      (predict/common_mode.h); a reading too odd to be noise is held back, and a second one of its sign settles it;
//   c) a split by the exact allocator, with each scale inflated so that every worker is the straggler as often as its
//      share of the speed says: that minimises the expected maximum (predict/expected_max.h);
//   d) once times are nearly balanced: equal shares unless others gain more than chance, and than plateaus that are
//      not flat in the model alone; small moves that tell nothing of the shapes one by one are checked, by going back
//      once, when they add up;
//   e) rent or buy: the predicted gain accumulates until it exceeds the price of a move, which for sizes that a worker
//      has not had yet is what its first step with a size costs (cold_sizes.h); sizes that all have had are cheaper.
//   f) who has no samples, since it would hold up the others with one, is measured again from time to time; who has the
//      least share that it may have and holds them up is named.
// Cost: O(K) plus two or three allocations a step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isochron/core/allocate/allocate.h"
#include "isochron/core/curve/shape_learner.h"
#include "isochron/core/options.h"
#include "isochron/core/policy/cold_sizes.h"
#include "isochron/core/policy/policy.h"
#include "isochron/core/predict/common_mode.h"
#include "isochron/core/predict/level_bank.h"

namespace isochron {

struct IsochronOptions {
  // Parts that can be switched off, to see what each one earns.
  bool risk = true;             // off: balance the expected times instead of minimising the expected maximum
  bool shape = true;            // off: every curve is linear
  bool two_hypotheses = true;   // off: outliers are ordinary readings
  bool rent_or_buy = true;      // off: every expected gain is taken at once
  bool common_mode = true;      // off: a slowdown that all share counts as noise
  double price = 0.015;         // of a move, in steps
  double false_alarm = 1e-3;    // chance per step that noise alone makes some reading an outlier
  double forgetting = 0.98;     // weight of past likelihood at every step
  std::string start = "equal";  // first split: equal, or weights (the workers' nominal speeds)

  void describe(OptionTable& table);
};

class IsochronPolicy final : public Policy {
 public:
  explicit IsochronPolicy(IsochronOptions options) : options_(std::move(options)) {}

  Proposal start(const Roster& roster, std::span<const std::int64_t> current) override;
  Proposal observe(
      const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) override;
  [[nodiscard]] Curve curve(std::size_t place) const override { return shape_of(tracks_[place]).curve(1.0); }
  [[nodiscard]] bool reads_any_batch() const override { return true; }
  void exchange(StateExchange& state) override;

 private:
  /// What is known of one worker.
  struct Track {
    bool seen = false;
    LevelBank scale;  // of log s
    ShapeEvidence evidence;
    std::size_t shape = 0;    // index into the grid
    double last_batch = 0.0;  // of the last valid reading
    double last_log_seconds = 0.0;
    double last_reading = 0.0;     // log s as that reading had it
    double last_surprise = 0.0;    // standard deviations; 0 once it was answered
    bool suspected = false;        // the last reading was held back
    std::int64_t idle_steps = 0;   // since it had samples
    std::int64_t probe_wait = 50;  // such steps until it is measured again
    bool accelerator = false;      // no CPU, and the first steps with a size are cold
    ColdSizes cold;
    double cold_scale = 0.0;  // s is at most this, by cold steps of a worker not seen yet; 0: there was none

    void exchange(StateExchange& state);
  };

  /// Scales s and their standard deviations (of the logarithm), in the roster's order.
  struct Outlook {
    std::vector<double> scales;
    std::vector<double> sigmas;
    bool flat = false;  // plateaus are, without the slope by which they are explored
  };

  /// A split, what a step with it is expected to cost, and whether it bets on a suspected change of speed.
  struct Choice {
    std::vector<std::int64_t> batches;
    double seconds = 0.0;
    bool bet = false;
    std::vector<std::int64_t> equal;  // none where times are not nearly balanced
    double certain_gain = 0.0;        // part of a step with equal shares that it saves for certain
    double doubted_gain = 0.0;        // what others than equal shares would save, if it is not chance
  };

  void admit(const Roster& roster);
  Proposal decide(const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current);
  /// The place of a worker that has had no samples for so long that it is to be measured again, or the number of
  /// workers; `coming` is what is to be proposed.
  std::size_t due_for_probe(
      const Roster& roster, std::span<const std::int64_t> current, std::span<const double> coming);
  /// The split in which the worker at `place` takes the least that it can.
  Proposal probe(const Roster& roster, std::size_t place);
  /// What to say where a worker holds up all others with the least share it may have; otherwise nothing.
  [[nodiscard]] std::string advice(const Roster& roster, std::span<const double> batches) const;
  void learn_cold_sizes(const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current);
  void learn_shapes(const Roster& roster, std::span<const Reading> readings);
  [[nodiscard]] std::vector<std::size_t> likely_shapes(const Roster& roster, double tolerance) const;
  void learn_scales(std::span<const Reading> readings);
  LevelBank::Verdict judge(Track& track, double reading, double surprise, double critical);
  [[nodiscard]] Outlook outlook() const;
  /// By its time for a typical batch; none if none was seen.
  [[nodiscard]] const Track* slowest_seen() const;
  [[nodiscard]] std::vector<double> noise_estimates() const;

  [[nodiscard]] std::vector<std::int64_t> split(const Roster& roster, std::span<const double> scales) const;
  [[nodiscard]] double work_seconds(const Outlook& outlook, std::size_t place, std::int64_t batch) const;
  [[nodiscard]] double step_seconds(
      const Roster& roster, const Outlook& outlook, std::span<const std::int64_t> batches) const;
  [[nodiscard]] double expected_seconds(
      const Roster& roster, const Outlook& outlook, std::span<const std::int64_t> batches) const;
  /// What a step with `batches` costs, in the sense of the option `risk`.
  [[nodiscard]] double cost(const Roster& roster, const Outlook& outlook, std::span<const std::int64_t> batches) const;
  /// Replaces `plain` by the split for the suspects' new speeds if that is the better bet; says whether it did.
  bool bet_on_suspects(const Roster& roster, Outlook& outlook, std::vector<std::int64_t>& plain) const;
  [[nodiscard]] std::vector<std::int64_t> risk_split(const Roster& roster, const Outlook& outlook) const;
  /// What the first step with `batches` costs on top, in seconds, for sizes that workers have not had yet.
  [[nodiscard]] double cold_seconds(
      const Roster& roster, const Outlook& outlook, std::span<const std::int64_t> batches) const;
  /// The best of the splits that were used before, but for `current`; no batches if there is none.
  [[nodiscard]] Choice best_used_split(
      const Roster& roster, const Outlook& outlook, std::span<const std::int64_t> current) const;
  /// A bet changes the outlook to the one it bets on.
  [[nodiscard]] Choice best_split(const Roster& roster, Outlook& outlook) const;
  /// The outlook without what may be chance: times for equal shares are drawn together, plateaus are flat.
  [[nodiscard]] Outlook sober(const Roster& roster, const Outlook& outlook, std::span<const std::int64_t> equal) const;
  /// Where `current` is nearly balanced: puts equal shares in place of others that gain nothing, or nothing but what
  /// may be chance.
  void prefer_equal(
      const Roster& roster, const Outlook& outlook, std::span<const std::int64_t> current, Choice& choice) const;
  /// What a step with equal shares takes if times are as nearly in proportion to batches as moves permit of which any
  /// one may mislead.
  [[nodiscard]] double worst_equal_seconds(
      const Roster& roster,
      const Outlook& outlook,
      std::span<const std::int64_t> current,
      std::span<const std::int64_t> equal) const;
  /// Whether `batches` save anything against equal shares.
  [[nodiscard]] bool gains(
      const Roster& roster,
      Outlook outlook,
      std::span<const std::int64_t> batches,
      std::span<const std::int64_t> equal) const;
  /// Whether a move to `wished` tells nothing about shapes while all moves since `anchor_` together would.
  [[nodiscard]] bool has_wandered(std::span<const std::int64_t> current, std::span<const std::int64_t> wished) const;
  void exchange_used(StateExchange& state);
  [[nodiscard]] const Shape& shape_of(const Track& track) const { return (*grid_)[track.shape]; }

  IsochronOptions options_;
  double typical_batch_ = 0.0;  // B / K when the job began: the scale of the grid
  std::optional<ShapeGrid> grid_;
  std::vector<WorkerId> ids_;  // in the roster's order
  std::vector<Track> tracks_;  // likewise
  CommonMode common_mode_;
  double changes_ = 1.0;                         // outliers that a second reading confirmed, plus one
  double spikes_ = 1.0;                          // those it did not, plus one
  double gain_ = 0.0;                            // accumulated since the last move, in steps
  double used_gain_ = 0.0;                       // likewise, of the best split that was used before
  std::vector<std::vector<std::int64_t>> used_;  // the last splits, the newest last, where sizes can be cold
  std::vector<std::int64_t> anchor_;             // the split of the last reading that told shapes apart
  std::int64_t check_steps_ = 0;                 // since the job went back to it
  std::int64_t check_wait_ = 0;                  // such steps until it may do so again
  double sync_points_ = 1.0;                     // of a step
};

}  // namespace isochron
