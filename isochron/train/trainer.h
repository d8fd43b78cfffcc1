// One training run of a built-in model on a built-in dataset, step by step: what `isochron train` does, and of which
// `isochron compare` holds several at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "isochron/core/trace/run_log.h"
#include "isochron/engine/job.h"
#include "isochron/train/options.h"

namespace isochron::train {

struct Evaluation {
  double loss = 0.0;      // mean over the test set
  double accuracy = 0.0;  // share of right predictions (of tokens, for sequences)
};

class Trainer {
 public:
  // Collective. Opens data, makes model and optimizer, restores a checkpoint if one is wanted.
  explicit Trainer(const Options& options);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();

  // Collective: one step of the global batch, checkpoint included if one is due. False if there was none left to do.
  bool step();
  // Collective and exact: every test sample once, counts added up over the workers.
  Evaluation evaluate();
  // This worker's seconds for a batch of its own, forward and backward without any exchange; the model stays as it is.
  double solo_seconds(std::int64_t batch);

  Job& job();
  std::int64_t total_steps() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace isochron::train
