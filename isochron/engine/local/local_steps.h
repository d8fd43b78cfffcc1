// This worker's steps of a job in local rounds (docs/local.md): a round of H global batches is a step of the replica,
// and begin(), backward(), finish() are those of a local step. Behind the last of a round all come together: what was
// measured goes round, the model averages, the replica completes the round. undo() and leave_group() give up the whole
// round, of which nothing is left then; leave_group() tells the others, who hear of it before their next local step.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "isochron/core/sample/interval.h"
#include "isochron/engine/local/local_model.h"
#include "isochron/engine/steps.h"

namespace isochron {

class LocalSteps final : public Steps {
 public:
  LocalSteps(
      const JobOptions& options,
      Replica& replica,
      JobDatasets& datasets,
      Membership& membership,
      LocalModel& model,
      StepClock& clock);

  bool loop_goes_on() const override;
  void end_loop_at(std::int64_t step) override { end_ = step; }
  // A round that is not finished did not happen.
  void close() override;

  std::optional<Batch> begin() override;
  // For all parameters: a pass that is for some optimizers is std::invalid_argument.
  StepVerdict backward(const at::Tensor& loss, const BackwardPass& pass) override;
  StepVerdict backward(const Batch& batch, const Job::LossOf& loss_of, const BackwardPass& pass) override;
  // Throws NonFiniteError, with everything as before the round, if the job is to end for it.
  std::optional<StepOutcome> finish() override;
  void undo() override;
  void leave_group() override;

  std::int64_t local_step() const override { return round_ ? static_cast<std::int64_t>(round_->done) : 0; }
  std::int64_t round_steps() const override;

 private:
  struct Round {
    std::vector<Interval> parts;  // positions of the local batches
    std::size_t done = 0;         // local steps
    at::Tensor loss;              // summed over samples; read at the end, since a GPU would have to be waited for
  };

  // Global batches of all epochs that are used.
  std::int64_t steps_done() const;
  void begin_round();
  Batch take_part();
  // This worker's samples of the local step under way.
  std::int64_t part_size() const { return round_->parts[round_->done].size(); }
  StepVerdict take(const at::Tensor& mean_loss);
  StepReport measure_round();
  StepOutcome end_round();
  StepOutcome refuse(const std::vector<StepReport>& reports);

  LocalModel& local_;
  std::int64_t end_ = -1;  // of the loop, in global batches; -1: the epoch's
  std::optional<Round> round_;
  double exchange_seconds_ = 0.0;  // of the last round's average
};

}  // namespace isochron
