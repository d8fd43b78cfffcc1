#include "isochron/server/served_chunk.h"

namespace isochron::server {

std::int64_t ServedChunk::apply(const PushHeader& push, Space gradient) {
  const ShardLedger::Taken taken = ledger_.take(push);
  if (taken.action != ShardLedger::Action::kNothing) {
    settings_ = push.settings;
  }
  if (taken.action == ShardLedger::Action::kApply) {
    step(gradient, taken.rate, settings_);
  } else if (taken.action == ShardLedger::Action::kAdd) {
    add(gradient, taken.weight, taken.first);
  }
  return taken.staleness;
}

Values ServedChunk::pull(const PullHeader& pull) {
  step(ledger_.pull(pull));
  return values();
}

void ServedChunk::finish_rounds(std::int64_t rounds) {
  step(ledger_.finish_rounds(rounds));
}

void ServedChunk::step(const std::optional<ShardLedger::Round>& round) {
  if (round && round->weight > 0.0) {
    step_mean(round->weight, round->rate, settings_);
  }
}

}  // namespace isochron::server
