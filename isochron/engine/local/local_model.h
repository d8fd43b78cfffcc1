// The user's model and optimizer as a job in local rounds trains them (docs/local.md). Within a round the optimizer
// takes steps of this worker's own; at its end the changes of the parameters are averaged over the group, weighted by
// samples, and the outer optimizer takes the step along their mean. BatchNorm normalises with the worker's own samples,
// and running statistics are averaged. The state of the user's optimizer stays this worker's.
//
// It holds a copy of parameters, buffers and optimizer state, to which undo() goes back. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "isochron/engine/trained_model.h"

namespace isochron {

class LocalModel final : public TrainedModel {
 public:
  explicit LocalModel(const JobSettings& settings);
  ~LocalModel() override;

  // As of jobs in step. Throws std::invalid_argument if there are several, or the optimizer is of a class whose state
  // it cannot copy.
  void prepare(const Models& models, const Optimizers& optimizers, const Group& group, bool in_chunks) override;
  void close() override;

  // What is there now is what undo() gives back, until average() has changed it for good.
  void begin_round();
  // Adds `weight` times this worker's own gradient to the gradients.
  static void add_gradient(const at::Tensor& loss, double weight);
  // Whether every parameter is a number.
  bool finite() const;
  // Ends the round; collective. `weight`: this worker's items over those of all. What it throws leaves the round to
  // undo().
  void average(const Group& group, double weight, double items);
  void undo() override;

  // With the outer optimizer.
  Checkpoint pack(const State& rest) const override;
  State unpack(const Checkpoint& checkpoint, const std::string& name) override;

 private:
  // Leaves the parameters as at the start of the round, and the mean change with the sign turned as their gradients.
  void average_changes(const Group& group, double weight);
  void average_some(const Group& group, double weight, std::size_t first, std::size_t last);
  void average_buffers(const Group& group, double items);
  // BatchNorm's kernels change running statistics without telling their version, so all are copied.
  void copy_buffers();

  const RoundOptions options_;
  std::unique_ptr<torch::optim::Optimizer> outer_;

  // As at the start of the round.
  std::vector<at::Tensor> starts_;           // by parameter
  std::vector<at::Tensor> statistics_;       // by buffer; also between two rounds
  std::map<std::string, at::Tensor> state_;  // of the user's optimizer
  bool under_way_ = false;
};

}  // namespace isochron
