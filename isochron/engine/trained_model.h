// The user's models and optimizers as a job trains them: gradients averaged over the group, BatchNorm over the global
// batch, the factor on the learning rate, and the way back from a step that did not happen.
//
// It knows no protocol: Steps says when, Recovery takes it from one group to the next. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isochron/core/state.h"
#include "isochron/engine/autocast.h"
#include "isochron/engine/buffer_copies.h"
#include "isochron/engine/checkpoint.h"
#include "isochron/engine/data_parallel.h"
#include "isochron/engine/error_feedback.h"
#include "isochron/engine/exchange.h"
#include "isochron/engine/learning_rate.h"
#include "isochron/engine/models.h"
#include "isochron/engine/optimizer_copies.h"
#include "isochron/engine/sync_batch_norm.h"

namespace isochron {

class TrainedModel {
 public:
  explicit TrainedModel(const JobSettings& settings);
  TrainedModel(const TrainedModel&) = delete;
  TrainedModel& operator=(const TrainedModel&) = delete;
  virtual ~TrainedModel() = default;

  // Collective: all get rank 0's parameters and buffers. `in_chunks`: some worker computes its batches in chunks, which
  // is std::invalid_argument for a model with BatchNorm; so is an optimizer of a parameter that no model has. All must
  // outlive this, or close().
  virtual void prepare(const Models& models, const Optimizers& optimizers, const Group& group, bool in_chunks);
  bool prepared() const { return !models_.empty(); }
  // BatchNorm's statistics are those of one forward pass, so chunks of a batch would each have their own.
  bool can_be_chunked() const { return statistics_.empty(); }
  virtual void close();
  // Around waits for others within forward and backward, on the thread that waits; before prepare().
  void tell_waits(SyncBatchNorm::OnWait on_wait) { on_wait_ = std::move(on_wait); }

  // Lets go of everything that is built on the group, in any state.
  void leave_group();
  // All hold the same parameters already.
  void enter_group(const Group& group);

  // A step. begin_step() and begin_pass() may wait for others; begin_forward() does not.
  void begin_step();
  // `counts`: false of samples that are a stand-in; `all_count`: no worker has one.
  void begin_forward(double learning_rate_factor, bool counts, bool all_count);
  // Before a pass's accumulate() and backward(). Throws std::invalid_argument if it is for an optimizer that is not one
  // of these.
  void begin_pass(const BackwardPass& pass);
  void accumulate(const at::Tensor& loss, double weight) {
    parallel_->accumulate(loss, weight, {.only_own = only_own_});
  }
  // `at_last_gradient` may be called on a thread of autograd's; what it throws, this does. After a pass that is not the
  // last one the pass's optimizers may take their steps, which undo() takes back.
  BackwardResult backward(const at::Tensor& loss, double weight, const std::function<void()>& at_last_gradient);
  // Exchanges inside the step since the last call.
  SyncBatchNorm::Waits take_waits() { return norms_->take_waits(); }
  // At the last local gradient this worker's own, after backward() the average.
  bool gradient_is_finite() const { return parallel_->finite(); }
  // The optimizers have taken their steps: the learning rate is the user's again.
  void end_step();
  // The step did not happen: gradients are dropped; running statistics, what optimizers have changed and what
  // compression owes are as before.
  virtual void undo();

  // Together with the rest of the job's state, which travels along as it is.
  virtual Checkpoint pack(const State& rest) const;
  // The same as all was when the step began: as long as no optimizer has taken its own step. It only reads, and no
  // gradient, so that backward() may be under way in another thread.
  Checkpoint pack_before_step(const State& rest) const;
  // Fills models and optimizers and returns the rest. `name` is what errors call the checkpoint.
  virtual State unpack(const Checkpoint& checkpoint, const std::string& name);
  // What compression owes, for a checkpoint that becomes a file (one that goes to another worker is without); nothing
  // if nothing can be owed. Collective.
  std::map<std::string, at::Tensor> gather_owed() const;
  // On all workers, from a checkpoint or from what was gathered for one, so that a job goes on as one that is restored.
  void take_owed(const std::map<std::string, at::Tensor>& tensors);

 protected:
  torch::nn::Module& model() const { return models_[0]; }
  torch::optim::Optimizer& optimizer() const { return optimizers_[0]; }
  // Those that are trained.
  std::vector<at::Tensor> parameters() const;

 private:
  using Places = std::vector<std::size_t>;  // of optimizers; increasing

  void build(const Group& group);
  Places places_of(const Optimizers& optimizers) const;
  DataParallel& parallel_of(const Places& places);
  std::vector<at::Tensor> trained_parameters(const Places& places) const;
  void begin_autocast();

  const DataParallelOptions gradients_;
  const bool sync_batch_norm_;
  const Precision precision_;
  const bool in_rounds_;  // gradients are each worker's own
  Models models_;
  Optimizers optimizers_;
  std::string statistics_;  // the name of some running statistics; empty: no model has any
  std::vector<LearningRate> rates_;
  std::vector<OptimizerCopies> copies_;
  std::optional<BufferCopies> buffers_;
  SyncBatchNorm::OnWait on_wait_;
  std::shared_ptr<ErrorFeedback> feedback_;  // null: gradients do not travel as int8
  // On the group.
  std::optional<SyncBatchNorm> norms_;
  std::optional<SyncBatchNorm::Scope> norm_scope_;
  std::optional<Autocast> autocast_;
  Group group_;
  std::map<Places, DataParallel> parallels_;  // by the optimizers that a pass is for; {}: a pass for all parameters
  // The pass under way, or the last one.
  DataParallel* parallel_ = nullptr;
  Places places_;
  bool only_own_ = false;
  bool retain_graph_ = false;
};

}  // namespace isochron
