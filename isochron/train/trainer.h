// One training run of a built-in model on a built-in dataset, step by step: what `isochron train` does, and of which
// `isochron compare` holds several at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "isochron/core/trace/run_log.h"
#include "isochron/engine/job.h"
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
  explicit Trainer(const Options& options, const Warn& warn = {});
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();

  // Collective: one whole step of the global batch, or one local round, checkpoint included if one is due; repeated
  // until it has happened, whatever became of the workers. False if there was none left to do, or the job is stopping.
  // A checkpoint that cannot be written is a warning, and an Error only at the end of the run.
  bool step();
  // With asynchronous training step() is one iteration of this worker alone, or none if the others have taken what was
  // left; what is collective is then for the moments at which all are together: after a step() that ended at a barrier.
  bool all_together() const;
  // Asynchronous training: all reach a barrier after so many steps of the global batch as well, not only where an epoch
  // or the run ends or a checkpoint is due; -1: no. While all are together, the same on all workers.
  void barrier_at(std::int64_t step);
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

  Job& job();
  // Global batches that are used: the job's steps, but for local rounds, which have several each.
  std::int64_t steps_done();
  std::int64_t total_steps() const;
  std::int64_t steps_per_epoch() const;
  std::int64_t samples_per_epoch() const;
  std::int64_t training_samples() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace isochron::train
