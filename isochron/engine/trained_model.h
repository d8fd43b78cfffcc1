// The user's model and optimizer as a job trains them: gradients averaged over the group, BatchNorm over the global
// batch, the factor on the learning rate, and the way back from a step that did not happen.
//
// It knows no protocol: Steps says when, Recovery takes it from one group to the next. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "isochron/core/state.h"
#include "isochron/engine/autocast.h"
#include "isochron/engine/buffer_copies.h"
#include "isochron/engine/checkpoint.h"
#include "isochron/engine/data_parallel.h"
#include "isochron/engine/exchange.h"
#include "isochron/engine/learning_rate.h"
#include "isochron/engine/sync_batch_norm.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace isochron {

class TrainedModel {
 public:
  explicit TrainedModel(const JobSettings& settings);

  // Collective: all get rank 0's parameters and buffers. `in_chunks`: some worker computes its batches in chunks, which
  // is std::invalid_argument for a model with BatchNorm. Both must outlive this, or close().
  void prepare(torch::nn::Module& model, torch::optim::Optimizer& optimizer, const Group& group, bool in_chunks);
  bool prepared() const { return model_ != nullptr; }
  // BatchNorm's statistics are those of one forward pass, so chunks of a batch would each have their own.
  bool can_be_chunked() const { return statistics_.empty(); }
  void close();

  // Lets go of everything that is built on the group, in any state.
  void leave_group();
  // All hold the same parameters already.
  void enter_group(const Group& group);

  // A step. begin_step() may wait for others; begin_forward() does not.
  void begin_step();
  // `counts`: false of samples that are a stand-in; `all_count`: no worker has one.
  void begin_forward(double learning_rate_factor, bool counts, bool all_count);
  void accumulate(const at::Tensor& loss, double weight) { parallel_->accumulate(loss, weight); }
  // `at_last_gradient` may be called on a thread of autograd's; what it throws, this does.
  BackwardResult backward(const at::Tensor& loss, double weight, const std::function<void()>& at_last_gradient);
  // Exchanges inside the step since the last call.
  SyncBatchNorm::Waits take_waits() { return norms_->take_waits(); }
  // At the last local gradient this worker's own, after backward() the average.
  bool gradient_is_finite() const { return parallel_->finite(); }
  // The optimizer has taken its step: the learning rate is the user's again.
  void end_step();
  // The optimizer has not taken it: gradients are dropped, running statistics are as before.
  void undo();

  // Together with the rest of the job's state, which travels along as it is.
  Checkpoint pack(const State& rest) const;
  // Fills model and optimizer and returns the rest. `name` is what errors call the checkpoint.
  State unpack(const Checkpoint& checkpoint, const std::string& name);

 private:
  void build(const Group& group, Start start);

  const DataParallelOptions gradients_;
  const bool sync_batch_norm_;
  const Precision precision_;
  torch::nn::Module* model_ = nullptr;
  torch::optim::Optimizer* optimizer_ = nullptr;
  std::string statistics_;  // the name of some running statistics; empty: the model has none
  std::optional<LearningRate> rate_;
  std::optional<BufferCopies> buffers_;
  // On the group.
  std::optional<SyncBatchNorm> norms_;
  std::optional<SyncBatchNorm::Scope> norm_scope_;
  std::optional<Autocast> autocast_;
  std::optional<DataParallel> parallel_;
};

}  // namespace isochron
