// This worker's steps: what lies between Replica::plan and Replica::complete. It fetches the samples, computes with the
// model, measures, and brings the reports round; what follows from them, the replica says.
//
// A step is begin(), backward(), the optimizer's own step, finish(). If the verdict of backward() is other than to take
// the step, one of redo(), leave_out() and undo() ends it in place of finish(). What any of them throws leaves the step
// as it is, for undo(). Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "isochron/core/replica/replica.h"
#include "isochron/engine/batch_source.h"
#include "isochron/engine/exchange.h"
#include "isochron/engine/job.h"
#include "isochron/engine/membership.h"
#include "isochron/engine/step_clock.h"
#include "isochron/engine/stop_signal.h"
#include "isochron/engine/trained_model.h"

namespace isochron {

class Steps {
 public:
  // All but `options` are shared with the rest of the job.
  Steps(const JobOptions& options, Replica& replica, Membership& membership, TrainedModel& model, StepClock& clock);
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps();

  // The dataset, once and for all.
  void open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader);
  bool is_open() const { return dataset_ != nullptr; }
  // The loop is over when the epoch in which it began is, wherever the job has gone meanwhile.
  void begin_loop() { loop_epoch_ = replica_.epoch(); }
  bool loop_goes_on() const { return !replica_.stopping() && replica_.epoch() == loop_epoch_; }
  void close();

  Batch begin();
  StepVerdict backward(const at::Tensor& loss);
  // In chunks, if the replica says so.
  StepVerdict backward(const Batch& batch, const Job::LossOf& loss_of);
  StepOutcome finish();

  std::vector<EventRecord> redo();
  StepOutcome leave_out();
  // The step did not happen here.
  void undo();
  // The same if there is one under way, and nothing refers to the group any more. One that the optimizer has taken is
  // left to the replica.
  void leave_group();

  // A batch is out, whose gradients the optimizer does not have.
  bool is_computing() const { return stage_ == Stage::kComputing; }
  // The optimizer has the gradients; finish() is due.
  bool is_taken() const { return stage_ == Stage::kTaken; }
  // This step's loss can be computed for chunks of its batch.
  bool is_chunkable() const { return by_function_ && !packed() && model_.can_be_chunked(); }
  // All workers are to stop after the step under way.
  void stop() { stop_wanted_ = true; }

 private:
  enum class Stage : std::uint8_t { kNone, kComputing, kTaken };

  void require_batch() const;
  // Samples are of unequal length, and losses are means over their tokens.
  bool has_lengths() const { return !dataset_->lengths().empty(); }
  bool packed() const { return has_lengths() && collation_ == Collation::kPacked; }
  void open_replica(const LoaderOptions& loader);
  Batch take_batch(const StepPlan& plan);
  // Of what the loss of the step under way is the mean over.
  void weigh(const StepPlan& plan);
  double share_of(const at::Tensor& chunk, const at::Tensor& whole) const;
  std::int64_t my_batch() const { return replica_.plan_under_way().mine.size(); }
  void reduce(const at::Tensor& loss, double weight, const std::function<double()>& mean_loss);
  StepReport measure(double loss);
  StepVerdict judge();
  std::vector<StepReport> take_reports();

  const JobOptions& options_;
  Replica& replica_;
  Membership& membership_;
  TrainedModel& model_;
  StepClock& clock_;
  std::optional<StopSignal> signals_;
  bool stop_wanted_ = false;

  std::shared_ptr<const data::Dataset> dataset_;
  std::unique_ptr<BatchSource> source_;
  Collation collation_ = Collation::kPacked;
  std::int64_t loop_epoch_ = 0;

  // The step under way.
  Stage stage_ = Stage::kNone;
  bool by_function_ = false;  // its loss is computed by a function that can be called for chunks
  double weight_ = 0.0;       // of this worker's mean loss
  double items_ = 0.0;        // what that is the mean over: samples, or tokens
  std::optional<ReportExchange> exchange_;
  std::vector<StepReport> reports_;  // of a step whose gradient is not finite
  double finished_ = 0.0;            // when the gradients were averaged
};

}  // namespace isochron
