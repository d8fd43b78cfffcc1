// A piece of the parameters on its server: the values, and the optimizer that moves them.
//
// Updates are applied in the order in which they come, each once, however often it is sent. Values that are on their
// way to a worker are not touched: an update that comes meanwhile moves a copy. Not thread-safe.
//
// In rounds (s = 0) the gradients of a round are added up, weighted by their samples, and applied as one by the first
// who knows that the round is over on all servers: that is whoever pulls for the next one. So a round in which a worker
// is lost can be left out everywhere and done again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include <ATen/core/Tensor.h>

#include "isochron/core/staleness/clock_table.h"
#include "isochron/server/protocol.h"

namespace torch::optim {
class Optimizer;
}

namespace isochron::server {

class ServedPiece {
 public:
  // `optimizer` moves `values`, which is flat and belongs to this from now on.
  ServedPiece(at::Tensor values, std::unique_ptr<torch::optim::Optimizer> optimizer, bool rate_by_staleness);
  ServedPiece(ServedPiece&&) noexcept;
  ~ServedPiece();

  // `gradient` is flat; it is used up. The staleness of the update; -1: it had been applied before.
  std::int64_t apply(const Push& push, const at::Tensor& gradient);
  // The present values, which stay as they are as long as somebody holds them. In rounds: after `rounds` of them.
  at::Tensor pull(WorkerId worker, std::int64_t rounds);

  std::int64_t updates() const { return updates_; }  // gradients that were taken in
  void forget_updates() { updates_ = 0; }
  // In rounds: how many are applied.
  std::int64_t rounds() const { return rounds_; }
  // Applies the last of so many if that has not happened yet.
  void finish_rounds(std::int64_t rounds);
  // What has come of one that is not over is forgotten.
  void restart_round() { round_samples_ = 0; }
  // The values are those after so many.
  void begin_at(std::int64_t rounds) { rounds_ = rounds; }
  const at::Tensor& values() const { return values_; }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  void step(const at::Tensor& gradient, double rate);
  void add_to_round(const Push& push, const at::Tensor& gradient);
  // The worker's iteration that is to come.
  std::int64_t& enter(WorkerId worker);

  at::Tensor values_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  bool rate_by_staleness_;
  ClockTable clocks_{std::nullopt};        // who has seen which updates
  std::map<WorkerId, std::int64_t> next_;  // by worker: the iteration that is to come
  std::int64_t updates_ = 0;
  at::Tensor round_sum_;
  std::int64_t round_samples_ = 0;   // in it
  std::int64_t round_complete_ = 0;  // when there are so many
  double round_rate_ = 0.0;
  std::int64_t rounds_ = 0;
};

}  // namespace isochron::server
