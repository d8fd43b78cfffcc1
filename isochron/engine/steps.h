// This worker's steps: what lies between Replica::plan and Replica::complete. It fetches the samples, computes with the
// model, measures, and brings the reports round; what follows from them, the replica says.
//
// A step is begin(), backward(), the optimizer's own step, finish(); of backward() and optimizers' steps there may be
// several. If the verdict of backward() is other than to take the step, one of redo(), leave_out() and undo()
// ends it in place of finish(); what the loop still does with its batch then has no effect. What any of them throws
// leaves the step as it is, for undo(). Not thread-safe, but for while_waiting().
//
// Reports go round at the last local gradient of the last pass. Where nobody says which pass is the last, that is known
// when the loop goes on, so they leave then. Waiting in the exchanges of earlier passes is taken out of the clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "isochron/core/replica/replica.h"
#include "isochron/engine/exchange.h"
#include "isochron/engine/job.h"
#include "isochron/engine/job_datasets.h"
#include "isochron/engine/membership.h"
#include "isochron/engine/step_clock.h"
#include "isochron/engine/stop_signal.h"
#include "isochron/engine/trained_model.h"

namespace isochron {

class Steps {
 public:
  // All but `options` are shared with the rest of the job.
  Steps(
      const JobOptions& options,
      Replica& replica,
      JobDatasets& datasets,
      Membership& membership,
      TrainedModel& model,
      StepClock& clock);
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  virtual ~Steps();

  // The loop is over when the epoch in which it began is, wherever the job has gone meanwhile.
  void begin_loop() { loop_epoch_ = replica_.epoch(); }
  virtual bool loop_goes_on() const { return !replica_.stopping() && replica_.epoch() == loop_epoch_; }
  // In local rounds: also where so many global batches are used, of all epochs; -1: nowhere else.
  virtual void end_loop_at(std::int64_t /*step*/) {}
  virtual void close();

  // None if this worker has nothing to compute in a round: finish() is due.
  virtual std::optional<Batch> begin();
  virtual StepVerdict backward(const at::Tensor& loss, const BackwardPass& pass);
  // In chunks, if the replica says so.
  virtual StepVerdict backward(const Batch& batch, const Job::LossOf& loss_of, const BackwardPass& pass);
  // None if it was a local step, and its round goes on.
  virtual std::optional<StepOutcome> finish();

  std::vector<EventRecord> redo();
  StepOutcome leave_out();
  // The step did not happen here.
  virtual void undo();
  // The loop is through with the batch of a step that did not happen.
  void forget_dropped();
  // The same if there is one under way, and nothing refers to the group any more. One that the optimizer has taken is
  // left to the replica.
  virtual void leave_group();

  // The local steps of a round that are done, and all that it has; 0 and 1 in step.
  virtual std::int64_t local_step() const { return 0; }
  virtual std::int64_t round_steps() const { return 1; }

  // A batch is out, whose gradients no optimizer has, or not those of the pass under way.
  bool is_computing() const { return stage_ == Stage::kComputing; }
  // The optimizers have the gradients; finish() is due.
  bool is_taken() const { return stage_ == Stage::kPassed || stage_ == Stage::kTaken; }
  // The step is not reported yet, so that it need not have happened.
  bool can_be_undone() const { return stage_ == Stage::kComputing || stage_ == Stage::kPassed; }
  // The step did not happen, and the loop may still be busy with its batch.
  bool is_dropped() const { return stage_ == Stage::kDropped; }
  // This step's losses can be computed for chunks of its batch.
  bool is_chunkable() const { return by_function_ && !by_value_ && !packed() && model_.can_be_chunked(); }
  // All workers are to stop after the step under way.
  void stop() { stop_wanted_ = true; }

  // False unless this worker waits within forward or backward, for gradients of others or those of a BatchNorm, and no
  // optimizer has taken its step: then `read` is called, and the step does not go on before it returns. For another
  // thread: the state before the step may be read, but no gradient.
  bool while_waiting(const std::function<void()>& read);

 protected:
  enum class Stage : std::uint8_t {
    kNone,
    kComputing,
    kPassed,   // a pass is done, and another may come
    kTaken,    // the last pass is done and reported
    kDropped,  // the step did not happen
  };

  void require_batch() const;
  // A loss that is not computed by a function is of a batch that need not be computed in chunks.
  void require_whole(std::int64_t batch) const;
  // What a report says besides measurements: whether all are to stop, and whether somebody wants to join.
  void say_rest(StepReport& measured) const;

  const JobOptions& options_;
  Replica& replica_;
  JobDatasets& datasets_;
  Membership& membership_;
  TrainedModel& model_;
  StepClock& clock_;

  // The step under way.
  Stage stage_ = Stage::kNone;
  bool by_function_ = false;  // a loss is computed by a function that can be called for chunks
  bool by_value_ = false;     // a loss is not

 private:
  void begin_pass(const BackwardPass& pass);
  // Samples are of unequal length, and losses are means over their tokens.
  bool has_lengths() const { return !lengths().empty(); }
  std::span<const std::int32_t> lengths() const { return datasets_.present().dataset->lengths(); }
  bool packed() const { return has_lengths() && datasets_.present().loader.collation == Collation::kPacked; }
  Batch take_batch(const StepPlan& plan);
  // Counts the items (samples or tokens) that the loss of the step under way is the mean over, and weighs the loss.
  void weigh(const StepPlan& plan);
  double share_of(const at::Tensor& chunk, const at::Tensor& whole) const;
  std::int64_t my_batch() const { return replica_.plan_under_way().mine.size(); }
  void reduce(
      const at::Tensor& loss, double weight, const BackwardPass& pass, const std::function<double()>& mean_loss);
  void note_waiting(bool waiting);
  void measure(double loss);
  StepReport report();
  StepVerdict judge(const BackwardPass& pass);
  std::vector<StepReport> take_reports();

  std::optional<StopSignal> signals_;
  bool stop_wanted_ = false;

  std::int64_t loop_epoch_ = 0;

  std::mutex waiting_mutex_;
  bool waiting_ = false;  // guarded

  // The step under way.
  bool passed_ = false;                     // optimizers may have taken steps of passes before this one
  double weight_ = 0.0;                     // of this worker's mean loss
  double items_ = 0.0;                      // what that is the mean over: samples, or tokens
  StepReport measured_;                     // at the last local gradient so far
  double loss_ = 0.0;                       // of its passes, added up
  bool finite_ = true;                      // as far as this worker's gradients were looked at
  SyncBatchNorm::Waits waits_;              // for others, within the step
  StepClock::Clock::duration last_wait_{};  // of the last pass, from its last local gradient on
  std::optional<ReportExchange> exchange_;
  std::vector<StepReport> reports_;  // of a step whose gradient is not finite
  double finished_ = 0.0;            // when the gradients were averaged
};

}  // namespace isochron
