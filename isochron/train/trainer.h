// One training run of a built-in model on a built-in dataset, step by step: what `isochron train` does, and of which
// `isochron compare` holds several at once.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include "isochron/core/sample/sampler.h"
#include "isochron/data/dataset.h"
#include "isochron/engine/job.h"
#include "isochron/io/step_file.h"
#include "isochron/model/model.h"
#include "isochron/train/optimizer.h"
#include "isochron/train/options.h"

namespace isochron::train {

struct Evaluation {
  double loss = 0.0;      // mean over the test set
  double accuracy = 0.0;  // share of right predictions (of tokens, for sequences)
};

// What a step costs a worker by itself, beside forward and backward.
struct SoloCosts {
  double prepare_seconds = 0.0;  // per sample: reading and augmenting it, by one thread
  double update_seconds = 0.0;   // the optimizer's step
  double parameter_bytes = 0.0;  // whose gradients are exchanged
};

class Trainer {
 public:
  // Collective. Opens data, makes model and optimizer, restores a checkpoint if one is wanted; `warn` is told of those
  // that are damaged. Throws std::invalid_argument naming the option, the value and what is permitted, as far as
  // possible before MPI is started.
  using Warn = std::function<void(const std::string&)>;
  explicit Trainer(const Options& options, Warn warn = {});
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();

  // Collective: one whole step of the global batch, or one local round, checkpoint included if one is due; repeated
  // until it has happened, whatever became of the workers. False if there was none left to do, or the job is stopping.
  // A checkpoint that cannot be written is a warning, and an Error only at the end of the run.
  bool step();
  // With asynchronous training step() is one iteration of this worker alone, or none if the others have taken what was
  // left; what is collective is then for the moments at which all are together: after a step() that ended at a barrier.
  bool all_together() const { return !asynchronous() || at_ == std::default_sentinel; }
  // Asynchronous training: all reach a barrier after so many steps of the global batch as well, not only where an epoch
  // or the run ends or a checkpoint is due; -1: no. While all are together, the same on all workers.
  void barrier_at(std::int64_t step) { barrier_at_ = step; }
  // Collective: a checkpoint now, if there is a folder for them. One that cannot be written is an Error.
  void save();
  // Collective and exact: every test sample once, counts added up over the workers.
  Evaluation evaluate();
  // This worker's seconds for a batch of its own, forward and backward without any exchange; the model stays as it is.
  double solo_seconds(std::int64_t batch);
  // Medians of a few repeats.
  SoloCosts solo_costs();

  // Tells the launcher of an emulated cluster, if there is one, that the job is at this step; step() does it too.
  void publish_step(std::int64_t step);

  Job& job() { return job_; }
  // Global batches that are used: the job's steps, but for local rounds, which have several each.
  std::int64_t steps_done() const;
  std::int64_t total_steps() const { return total_steps_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t samples_per_epoch() const { return first_epoch().samples_per_epoch(); }
  std::int64_t training_samples() const { return train_->size(); }

 private:
  bool asynchronous() const { return !in_step(options_.job.sync); }
  c10::Device device() const { return options_.job.device; }
  SamplerOptions order(std::int64_t global_batch) const;
  Sampler first_epoch() const;
  void make_folder();
  void resume();
  bool first_says(bool value);

  bool begin_step();
  bool iterate();
  std::int64_t next_barrier() const;
  void note_membership();
  double learning_rate() const;
  bool checkpoint_is_due(std::int64_t before) const;
  void save_if_due(std::int64_t before);

  Evaluation evaluate_once();
  std::vector<std::int64_t> evaluation_split() const;
  void add_scores(const Batch& batch, std::vector<double>& sums) const;

  void prepare_solo(std::int64_t batch);
  void solo_backward() const;
  double prepare_seconds() const;
  double update_seconds();

  const Options options_;
  const Warn warn_;
  const std::shared_ptr<const data::Dataset> train_;
  const std::shared_ptr<const data::Dataset> test_;
  const std::shared_ptr<model::Model> model_;
  const std::unique_ptr<torch::optim::Optimizer> optimizer_;
  const std::int64_t steps_per_epoch_;
  const std::int64_t total_steps_;
  const DecayOptions decay_;
  Job job_;
  Loader::Iterator at_;
  std::int64_t barrier_at_ = -1;
  bool member_ = false;                    // the launcher knows that this worker takes part
  std::optional<io::StepFile> step_file_;  // the first worker's, if the launcher wants to know

  std::shared_ptr<model::Model> solo_model_;
  Batch solo_batch_;
};

}  // namespace isochron::train
