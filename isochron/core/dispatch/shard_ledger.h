// What has become of the updates of a chunk, or of a whole shard of the parameters: each is applied once, however often
// it is sent, and its staleness is known. The arithmetic is the caller's.
//
// In rounds (s = 0) gradients are added up, and the mean is applied by the first who knows that the round is over on
// all servers: that is whoever pulls for the next one. So a round in which a worker is lost can be left out everywhere
// and done again. O(log K) per call. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "isochron/core/dispatch/messages.h"
#include "isochron/core/rate/rate.h"
#include "isochron/core/staleness/clock_table.h"

namespace isochron {

class ShardLedger {
 public:
  enum class Action : std::uint8_t {
    kNothing,  // it was there already, or has no gradient
    kApply,    // the gradient, at `rate`
    kAdd,      // the gradient times `weight` to the sum of the round
  };
  struct Taken {
    Action action = Action::kNothing;
    std::int64_t staleness = 0;  // -1: it was there already
    double rate = 0.0;
    double weight = 0.0;
    bool first = false;  // of the round: the sum begins
  };
  struct Round {
    double weight = 0.0;  // sum of all; 0: there is nothing to apply
    double rate = 0.0;
  };

  /// `rule`: what of it follows staleness is applied here.
  explicit ShardLedger(PushRate rule) : rule_{.by_staleness = rule.by_staleness} {}

  /// What is to be done with an update. Throws isochron::Error if it is of a round that is not under way.
  Taken take(const PushHeader& push);
  /// The worker gets the values. In rounds: the round that is to be applied before, if there is one.
  std::optional<Round> pull(const PullHeader& pull);
  /// Rounds up to that number are over.
  std::optional<Round> finish_rounds(std::int64_t rounds);

  /// Gradients that were taken in.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  void forget_updates() { updates_ = 0; }
  /// In rounds: how many are applied.
  [[nodiscard]] std::int64_t rounds() const { return rounds_; }
  /// What has come of one that is not over is forgotten.
  void restart_round() { samples_ = 0; }
  /// The values are those after so many.
  void begin_at(std::int64_t rounds) { rounds_ = rounds; }

 private:
  Taken add_to_round(const PushHeader& push);
  /// The worker's iteration that is to come.
  std::int64_t& next_of(WorkerId worker);

  PushRate rule_;
  ClockTable clocks_{std::nullopt};        // who has seen which updates
  std::map<WorkerId, std::int64_t> next_;  // by worker: the iteration that is to come
  std::int64_t updates_ = 0;
  std::int64_t rounds_ = 0;
  std::int64_t samples_ = 0;        // in the round
  std::int64_t round_samples_ = 0;  // when it is complete
  Round round_;
  bool skipped_ = false;  // somebody has no gradient, so nobody's counts, as in synchronous training
};

}  // namespace isochron
