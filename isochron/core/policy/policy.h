// A policy decides how the global batch is split for the coming step, from what the workers reported of past ones.
//
// Policies are pure: no clock, no I/O, no randomness; the same calls give the same answers. A policy may propose what
// its published law says even where that is not legal (negative batches, a sum that drifts): the Controller turns a
// proposal into the nearest legal decision and says so. Not thread-safe; one instance per job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/core/curve/curve.h"
#include "isochron/core/state.h"
#include "isochron/core/telemetry.h"
#include "isochron/core/worker.h"

namespace isochron {

enum class Reason : std::uint8_t {
  kStarted,        // nothing is known yet
  kRosterChanged,  // a worker joined or left, or a bound changed
  kKept,           // a better split would not be worth the move, or there is none
  kObserving,      // the policy gathers readings before it decides
  kOutlier,        // a reading so odd that it is held back until another confirms it
  kRebalanced,     // speeds are known better than before
  kSpeedChanged,   // a worker's speed changed for good
  kProbing,        // a batch chosen to learn from
  kNoTelemetry,    // no usable reading
};
inline constexpr Reason kLastReason = Reason::kNoTelemetry;

/// "rebalanced", for logs and tables.
std::string_view to_string(Reason reason);
/// The field "reason" of a state; throws std::invalid_argument unless it is a known one.
void exchange_reason(StateExchange& state, Reason& reason);

struct Proposal {
  std::vector<double> batches;  // in the roster's order; need not be legal
  Reason reason = Reason::kKept;
  std::string words;  // the reason for people, one clause without a full stop
};

class Policy {
 public:
  Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;
  virtual ~Policy() = default;

  /// The split for the first step, or after the roster changed. What was learned of workers that stay (same id) is
  /// kept; `current` is the split in force for `roster`'s workers, 0 for new ones, and empty at the first call.
  virtual Proposal start(const Roster& roster, std::span<const std::int64_t> current) = 0;

  /// The split for the coming step. `readings` and `current` (the split in force) are in the roster's order.
  virtual Proposal observe(
      const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) = 0;

  /// The time of the worker at `place` in the roster over its batch, up to a factor, as far as the policy knows it.
  [[nodiscard]] virtual Curve curve(std::size_t place) const;

  /// Whether a reading may be of another batch than was decided, as it is where samples cost differently. Otherwise it
  /// is brought to that batch, in proportion.
  [[nodiscard]] virtual bool reads_any_batch() const { return false; }

  /// Lists what was learned (see StateExchange). The roster itself is not part of it: a state is restored into a policy
  /// that was started with workers of the same ids, and from then on both answer alike.
  virtual void exchange(StateExchange& state) = 0;
};

/// `current` as a proposal: nothing changes.
Proposal keep(std::span<const std::int64_t> current, Reason reason, std::string words);

/// Shares in proportion to `weights` (> 0), by the exact allocator with linear curves, bounds kept.
std::vector<double> proportional_split(const Roster& roster, std::span<const double> weights);

/// Equal shares, bounds kept.
std::vector<double> equal_split(const Roster& roster);

/// After a change of the roster: shares in proportion to `current`, an average one for who has none, bounds kept.
std::vector<double> weights_with_newcomers(const Roster& roster, std::span<const std::int64_t> current);

}  // namespace isochron
