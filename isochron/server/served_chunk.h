// A chunk of the parameters on its server: the values, and the optimizer that moves them, as the ledger says
// (core/dispatch/shard_ledger.h). Values that are on their way to a worker are not touched: an update that comes
// meanwhile moves a copy. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "isochron/core/dispatch/shard_ledger.h"

namespace torch::optim {
class Optimizer;
}

namespace isochron::server {

class ServedChunk {
 public:
  // `optimizer` moves `values`, which is flat and belongs to this from now on.
  ServedChunk(at::Tensor values, std::unique_ptr<torch::optim::Optimizer> optimizer, PushRate rule);
  ServedChunk(ServedChunk&&) noexcept;
  ~ServedChunk();

  // `gradient` is flat; it is used up. The staleness of the update; -1: it had been applied before.
  std::int64_t apply(const PushHeader& push, const at::Tensor& gradient);
  // The present values, which stay as they are as long as somebody holds them.
  at::Tensor pull(const PullHeader& pull);
  // In rounds: applies the last of so many if that has not happened yet.
  void finish_rounds(std::int64_t rounds);

  ShardLedger& ledger() { return ledger_; }
  const ShardLedger& ledger() const { return ledger_; }
  const at::Tensor& values() const { return values_; }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  void step(const at::Tensor& gradient, double rate);
  void step(const std::optional<ShardLedger::Round>& round);

  at::Tensor values_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  ShardLedger ledger_;
  at::Tensor round_sum_;
};

}  // namespace isochron::server
