#include "isochron/core/dispatch/shard_ledger.h"

#include <string>

#include "isochron/core/error.h"

namespace isochron {

ShardLedger::Taken ShardLedger::take(const PushHeader& push) {
  std::int64_t& next = next_of(push.from.worker);
  if (push.from.iteration < next) {
    return {.staleness = -1};
  }
  if (push.round_samples > 0 && push.from.round != rounds_) {
    throw Error(
        "an update of round " + std::to_string(push.from.round) + " came while round " + std::to_string(rounds_) +
        " is under way");
  }
  next = push.from.iteration + 1;
  updates_ += push.skipped ? 0 : 1;
  if (push.round_samples > 0) {
    return add_to_round(push);
  }
  if (push.skipped) {
    return {};
  }
  const std::int64_t staleness = clocks_.push(push.from.worker);
  return {.action = Action::kApply, .staleness = staleness, .rate = push.rate * push_factor(rule_, 1, 1, 1, staleness)};
}

ShardLedger::Taken ShardLedger::add_to_round(const PushHeader& push) {
  if (samples_ == 0) {
    round_ = {};
    skipped_ = false;
  }
  samples_ += push.from.samples();
  round_samples_ = push.round_samples;
  round_.rate = push.rate;
  skipped_ |= push.skipped;
  if (push.skipped) {
    return {};
  }
  const bool first = round_.weight == 0.0;
  round_.weight += push.weight;
  return {.action = Action::kAdd, .weight = push.weight, .first = first};
}

std::optional<ShardLedger::Round> ShardLedger::pull(const PullHeader& pull) {
  const std::optional<Round> round = finish_rounds(pull.rounds);
  if (pull.iteration >= next_of(pull.worker)) {  // else it has come late, and nobody waits for the answer
    clocks_.pull(pull.worker);
  }
  return round;
}

std::optional<ShardLedger::Round> ShardLedger::finish_rounds(std::int64_t rounds) {
  if (rounds <= rounds_) {
    return std::nullopt;
  }
  ISO_CHECK(
      rounds == rounds_ + 1 && samples_ == round_samples_,
      "round " + std::to_string(rounds) + " is to be over, but a part of the parameters has " +
          std::to_string(rounds_) + " and " + std::to_string(samples_) + " of " + std::to_string(round_samples_) +
          " samples of the next");
  samples_ = 0;
  rounds_ = rounds;
  return skipped_ ? Round{} : round_;
}

std::int64_t& ShardLedger::next_of(WorkerId worker) {
  const auto [next, is_new] = next_.try_emplace(worker, 0);
  if (is_new) {
    clocks_.join(worker);
  }
  return next->second;
}

}  // namespace isochron
