// A chunk of the parameters on its server: the ledger says what becomes of an update (core/dispatch/shard_ledger.h), a
// framework does the arithmetic. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "isochron/core/dispatch/shard_ledger.h"
#include "isochron/server/link.h"

namespace isochron::server {

// Values on their way, and who keeps them as they are meanwhile.
struct Values {
  Bytes bytes;
  std::shared_ptr<const void> keeper;
};

class ServedChunk {
 public:
  explicit ServedChunk(PushRate rule) : ledger_(rule) {}
  ServedChunk(const ServedChunk&) = delete;
  ServedChunk& operator=(const ServedChunk&) = delete;
  virtual ~ServedChunk() = default;

  // `gradient` is used up; it is empty if the push is skipped. The staleness of the update; -1: it had been applied
  // before.
  std::int64_t apply(const PushHeader& push, Space gradient);
  // The present values.
  Values pull(const PullHeader& pull);
  // In rounds: applies the last of so many if that has not happened yet.
  void finish_rounds(std::int64_t rounds);

  ShardLedger& ledger() { return ledger_; }
  [[nodiscard]] const ShardLedger& ledger() const { return ledger_; }

  [[nodiscard]] virtual std::size_t size() const = 0;  // bytes

 protected:
  virtual Values values() = 0;
  // Moves the values. `settings` are the worker's, as it sent them; `rate` is its learning rate or a factor of it.
  virtual void step(Space gradient, double rate, const std::string& settings) = 0;
  // The same with the mean of the gradients that were added up, whose weights have this sum; the next begins at 0.
  virtual void step_mean(double weight, double rate, const std::string& settings) = 0;
  // `first`: the sum begins.
  virtual void add(Space gradient, double weight, bool first) = 0;

 private:
  void step(const std::optional<ShardLedger::Round>& round);

  ShardLedger ledger_;
  std::string settings_;  // of the last push
};

}  // namespace isochron::server
