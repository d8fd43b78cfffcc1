// One worker's copy of a synchronous job: the step protocol that every front end runs. It owns the roster, the
// controller, the place in the data with its ledger, the memory ceilings and the last record, and says what the coming
// step is, who takes which samples of it, and what follows from what the workers report.
//
// Pure: no clock, thread, file or framework. The caller computes, brings reports round and reads clocks; replicas that
// are told the same hold the same state, so nobody asks a coordinator. One step:
//   a) plan() says what this worker computes: Between -> Computing;
//   b) report() signs what was measured: Computing -> Computed; the caller gathers the reports of all ranks;
//   c) complete() checks that all did the same step, accounts for its samples, and lets the controller decide on the
//      next one: Computed -> Between. redo() does it for a step that is to be computed again, leave_out() for one whose
//      samples are given up since the gradient is not finite. judge() says which of them is due.
//   d) abandon() leaves a step that did not happen here, since a peer was lost or memory ran out.
//
// After a failure, or when a worker joins, the workers that are left
//   e) abandon() the step, unless the optimizer has taken it already, and gather progress();
//   f) settle() (progress.h) says who leads and who is behind; finish_unreported() counts a step whose reports are
//   lost; g) the leader sends its model, optimizer and state() to those who are behind, who take_over() it;
//   h) adopt() takes the roster of the settlement and deals the global batch anew.
// A call out of order is an OrderError and changes nothing. Not thread-safe. A step costs what the policy costs, and
// O(K) beyond it for K workers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/core/job_settings.h"
#include "isochron/core/policy/controller.h"
#include "isochron/core/policy/memory_ceilings.h"
#include "isochron/core/rate/rate.h"
#include "isochron/core/replica/epoch_cursor.h"
#include "isochron/core/replica/known_sizes.h"
#include "isochron/core/replica/progress.h"
#include "isochron/core/replica/rounds.h"
#include "isochron/core/replica/saved_replica.h"
#include "isochron/core/replica/step_report.h"
#include "isochron/core/replica/work_shares.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/core/state.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/core/worker.h"

namespace isochron {

/// b_k K / B for b_k of `step_size` samples. Throws std::invalid_argument unless 0 <= batch <= step_size and
/// step_size, workers > 0.
double loss_weight(std::int64_t batch, std::int64_t step_size, std::int64_t workers);

/// What concerns this worker alone.
struct LocalOptions {
  bool cpu = true;              // false: the device's first step with a batch size takes longer than the later ones
  std::int64_t chunk_size = 0;  // larger batches are computed in chunks of at most this; 0: in one
};

/// What all replicas believe of the coming step, and this worker's part of it.
struct StepPlan {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t position = 0;     // of the step's first sample in the epoch's order
  std::int64_t step_size = 0;    // samples of all workers: B, or fewer at the end of an epoch
  std::int64_t local_steps = 1;  // of each worker's optimizer: more than 1 in a round of sync local
  std::vector<Interval> slices;  // positions, by rank
  Interval mine;                 // this worker's; empty: it computes a stand-in that counts for nothing
  /// Where shares are dealt by cost, slices are intervals of these: the step's positions, rank after rank. Empty where
  /// they are dealt by count, in the epoch's order.
  std::vector<std::int64_t> dealt;
  std::vector<WorkShares::Share> shares;  // by rank, where they are dealt by cost
  double loss_weight = 0.0;               // of the local mean loss, before gradients are averaged over the workers
  double learning_rate_factor = 1.0;
  bool diagnose = false;  // the last attempt's gradient was not finite: everybody looks at its own before averaging
  Decision decision;
  std::uint64_t digest = 0;  // of all that the replicas must agree on

  /// Samples by rank: those of the slices.
  [[nodiscard]] std::vector<std::int64_t> batches() const;
  /// This worker's positions of each of its local steps; fewer than local_steps if it has fewer samples.
  [[nodiscard]] std::vector<Interval> parts() const { return Rounds::parts(mine, local_steps); }
  /// The positions in the epoch's order of one of the slices; increasing.
  [[nodiscard]] std::vector<std::int64_t> positions(const Interval& slice) const;
};

enum class StepAction : std::uint8_t {
  kTake,      // complete(): the optimizer takes the step
  kRedo,      // redo(): the step is computed again
  kLeaveOut,  // leave_out()
  kRollBack,  // roll_back() to the last checkpoint; if there is none, as kStop
  kStop,      // the job ends; the model is as before the step
};

inline constexpr Names<StepAction, 5> kStepActionNames{
    {{StepAction::kTake, "take"},
     {StepAction::kRedo, "redo"},
     {StepAction::kLeaveOut, "leave-out"},
     {StepAction::kRollBack, "roll-back"},
     {StepAction::kStop, "stop"}}};

struct StepVerdict {
  StepAction action = StepAction::kTake;
  std::vector<int> ranks;  // whose loss or gradient is not finite, or whose memory ran out
  std::string message;     // for people; empty if the step is taken
};

struct StepOutcome {
  StepRecord record;  // record.loss is the mean over the global batch
  std::vector<EventRecord> events;
  bool stop = false;            // the job ends: all workers know
  int stop_signal = 0;          // the signal that asked for it on any worker; 0: none
  bool newcomer = false;        // a worker is ready to join: all come together before the next step
  bool epoch_finished = false;  // this step was the epoch's last
  std::vector<int> non_finite;  // ranks whose loss or own gradient is not finite
};

/// A call that does not fit what the replica is at; the text says what to do instead.
class OrderError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

class Replica {
 public:
  enum class Phase : std::uint8_t {
    kBetween,    // two steps
    kComputing,  // a plan is out
    kComputed,   // this worker's part is computed and reported
  };

  /// `workers` by rank; their ids become their ranks. Throws std::invalid_argument on a bad option, or if their bounds
  /// cannot hold B.
  Replica(JobSettings options, std::vector<Worker> workers, int rank, const LocalOptions& local = {});
  /// For a process that is to join a running job: it can do nothing before take_over() and adopt().
  static Replica newcomer(JobSettings options, Worker self, const LocalOptions& local = {});

  /// The data, once and for all; goes to the place of a state that was restored before. Throws std::invalid_argument if
  /// the job has other data already.
  void open(std::int64_t dataset_size);
  /// A dataset whose samples cost differently: shares are amounts of work from now on, and every step is dealt by cost.
  /// All workers must have the same works; the digest of a step tells. Their granularities are 1.
  void open(SampleWorks works);
  void open_stream();
  /// Data whose samples cost differently, and which are known only when they come: a stream, or a dataset that has an
  /// order of its own. plan_arrived() is told their works, those of a step at a time.
  void open(const ArrivingWorks& works);

  // A step.

  /// `from_stream`: how many samples the stream has for this step, 1 to B; with a dataset it is left out. `most` bounds
  /// the samples of a round; 0: no bound.
  const StepPlan& plan(std::int64_t from_stream = 0, std::int64_t most = 0);
  /// The same for a stream whose parts the workers read apart: how many samples each has, by rank, 1 to B in all.
  const StepPlan& plan_parts(std::span<const std::int64_t> samples);
  /// The same for data that is dealt by cost as it arrives: the works of the samples that there are for this step; of a
  /// stream 1 to B.
  const StepPlan& plan_arrived(std::span<const float> works);
  /// What was measured of the step, completed by what only the replica knows: batch, squares, digest, failed_batch.
  StepReport report(StepReport measured);
  /// Once the gradients of a reported step are averaged: the squared norms of this worker's own mean gradient and of
  /// the average. They travel with the next report, for AdaScale.
  void measure_gradient(double local_square, double global_square);
  /// What this worker's change of the parameters in a reported round is multiplied with before the changes are added
  /// up: its items over those of all.
  [[nodiscard]] double average_weight(std::span<const StepReport> reports) const;
  /// What to do with a step whose reports are here.
  [[nodiscard]] StepVerdict judge(std::span<const StepReport> reports, bool gradient_is_finite) const;
  /// `finished`: when the gradients were averaged, on this worker's clock. Throws isochron::Error, changing nothing, if
  /// the replicas do not agree.
  StepOutcome complete(std::span<const StepReport> reports, double finished, double now);
  StepOutcome leave_out(std::span<const StepReport> reports, double finished, double now);
  /// Lowers the ceilings of those whose memory did not hold their batch and deals the same step anew; if there are
  /// none, the step is computed again for a diagnosis. Throws isochron::Error if the workers cannot take B any more.
  std::vector<EventRecord> redo(std::span<const StepReport> reports, double now);
  /// The step did not happen here.
  void abandon();
  /// The same, since memory did not hold this worker's batch, or what averaging its gradients needs: progress() tells
  /// the others. False, changing nothing, if there is nothing smaller to try.
  bool abandon_for_memory(bool chunkable);
  /// The stream has no sample left for another step, or the loop wants no more of the dataset's epoch.
  void end_epoch();
  /// Between two steps: the job goes on with other data, at a place that this returned before, or at its beginning.
  /// Returns the place in the data that it leaves, as a State. A dataset_size of 0 is a stream.
  State change_data(std::int64_t dataset_size, const std::optional<State>& place);

  // Workers come and go.

  /// This worker gives up on the one with this rank; progress() tells the others.
  void note_eviction(int rank);
  /// Not while a step is computing: abandon() it first. In Computed it says that the optimizer has taken the step.
  [[nodiscard]] ProgressReport progress(double now) const;
  /// Counts the step that the optimizer has taken here, if the settlement says that its reports are lost.
  std::optional<StepRecord> finish_unreported(const Settlement& settlement, double now);
  /// The state of the leader, on a worker that is behind or new.
  void take_over(const State& state);
  /// Once everybody is as far as the leader; `rank` is this worker's new one. Throws isochron::Error if the workers
  /// that are left cannot take B.
  std::vector<EventRecord> adopt(const Settlement& settlement, int rank, double now);
  /// By rank, between two steps and the same on all workers: their bounds and weights, as somebody outside knows them.
  /// Throws std::invalid_argument, changing nothing, if they are not the members or cannot hold B.
  void change_workers(std::vector<Worker> workers);
  void change_bounds(std::span<const BatchBounds> bounds);

  // As a value, less model and optimizer. All three throw std::invalid_argument on a state that is not of this job.

  [[nodiscard]] State state() const;
  /// The same as it was before the step under way.
  [[nodiscard]] State state_before_step() const;
  /// In a new run, on any number of workers: those with the ranks of before have their ids. Names the option that
  /// differs.
  void restore(const State& state);
  /// To an earlier state of this run, in any phase.
  std::vector<EventRecord> roll_back(const State& state, const std::string& message, double now);

  // What it is at.

  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] bool joined() const { return joined_; }
  [[nodiscard]] bool on_cpu() const { return known_sizes_.of_cpu(); }
  [[nodiscard]] const JobSettings& options() const { return options_; }
  /// In the order of ranks, with the bounds that memory permits.
  [[nodiscard]] const std::vector<Worker>& workers() const;
  /// With the bounds that they gave themselves.
  [[nodiscard]] const std::vector<Worker>& members() const { return members_; }
  [[nodiscard]] const Decision& decision() const;
  /// What plan() said last, while that step is under way.
  [[nodiscard]] const StepPlan& plan_under_way() const { return plan_; }
  /// H of the coming round; 1 unless steps are rounds.
  [[nodiscard]] std::int64_t round_steps() const { return rounds_ ? rounds_->steps() : 1; }
  /// The number of the step under way, or of the coming one.
  [[nodiscard]] std::int64_t step() const { return controller_ ? controller_->decision().step : 0; }
  [[nodiscard]] std::int64_t epoch() const;
  [[nodiscard]] std::int64_t position() const;
  [[nodiscard]] const Ledger& ledger() const { return cursor().ledger(); }
  /// Throws OrderError if there is no data yet, or a stream.
  [[nodiscard]] const Sampler& sampler() const;
  /// Larger batches are computed in chunks of at most this; 0: in one. A lack of memory may set it.
  [[nodiscard]] std::int64_t chunk_size() const;
  [[nodiscard]] bool stopping() const { return stopping_; }
  [[nodiscard]] int stop_signal() const { return stop_signal_; }
  /// Shares are amounts of work, dealt by cost.
  [[nodiscard]] bool by_cost() const { return units_per_sample_ > 1 && !rounds_; }
  /// What shares of a step are counted in: 1 by count, unless steps are rounds.
  [[nodiscard]] std::int64_t units_per_sample() const { return units_per_sample_; }
  /// What a sample costs this worker on top of its work, in works of the mean sample, as learned so far; 0 by count.
  [[nodiscard]] double work_per_sample() const;
  /// What the mean square of a length costs, in works of the mean length, as learned so far; 0 where it is not learned.
  [[nodiscard]] double work_per_square() const { return work_ ? work_->work_per_square() : 0.0; }
  /// By cost: the positions that this worker would take of the step there, if nothing more were learned until then. For
  /// who prepares samples ahead. The place is one of the dataset's.
  [[nodiscard]] std::vector<std::int64_t> foresee(std::int64_t epoch, std::int64_t position) const;
  /// The last finished step.
  [[nodiscard]] const std::optional<StepRecord>& last_step() const { return record_; }

 private:
  struct Unjoined {};
  Replica(Unjoined unjoined, JobSettings options, std::vector<Worker> members, int rank, const LocalOptions& local);

  void open_by_cost(WorkShares shares);
  const StepPlan& plan_dealt(std::int64_t size, WorkShares::Dealt dealt);
  const StepPlan& plan_slices(std::int64_t size, std::vector<Interval> slices, WorkShares::Dealt dealt = {});
  void require(Phase phase, const char* call) const;
  [[nodiscard]] const EpochCursor& cursor() const;
  [[nodiscard]] SamplerOptions sampler_options(std::int64_t dataset_size) const;
  void open_at(EpochCursor cursor);
  [[nodiscard]] std::uint64_t digest() const;
  [[nodiscard]] double loss_weight() const;
  /// Samples that this worker holds in memory at once.
  [[nodiscard]] std::int64_t held_at_once() const;
  /// The same in what shares are counted in, if that was too much: in units, a multiple of a sample's if it was a chunk
  /// of the share, and an odd number if it was all of it.
  [[nodiscard]] std::int64_t held_units() const;
  void check_reports(std::span<const StepReport> reports) const;
  StepOutcome finish(std::span<const StepReport> reports, double finished, double now, bool taken);

  [[nodiscard]] std::vector<Worker> with_ceilings() const;
  /// The controller deals to the members as they are, if it does not already.
  void fit_to_members();
  [[nodiscard]] std::string trouble_of_fitting();
  void note_memory_failures(std::span<const MemoryFailure> failures, double now, std::vector<EventRecord>& events);
  /// Memory did not hold a chunk of the worker's share: it computes smaller ones, and its share stays.
  [[nodiscard]] bool is_of_chunk(const MemoryFailure& failure) const;
  /// Where the ceilings leave no room for B, those who ran out of memory just now compute in chunks, or it is tried
  /// once more without ceilings.
  void deal_anew(std::span<const MemoryFailure> failures);
  bool change_to_chunks(std::span<const MemoryFailure> failures);
  [[nodiscard]] EventRecord event(Event event, WorkerId worker, std::string words, double now) const;

  [[nodiscard]] SavedReplica saved() const;
  /// `workers` have bounds in units.
  [[nodiscard]] Controller make_controller(std::vector<Worker> workers, std::int64_t units_per_sample) const;
  /// Controller, ceilings and place: what restore(), take_over() and roll_back() have in common. All or nothing.
  void follow(const SavedReplica& saved);

  JobSettings options_;
  std::vector<Worker> members_;  // by rank, with the bounds that they gave themselves
  int rank_;
  bool joined_ = false;                   // false until a newcomer has adopted a settlement, which gives it an id
  std::optional<Controller> controller_;  // none before a newcomer has taken over a state
  WorkerId next_id_;
  MemoryCeilings ceilings_;
  std::optional<EpochCursor> cursor_;       // none: the data is not known yet
  std::optional<DataPlace> pending_place_;  // restored, until the data is known
  std::optional<Rounds> rounds_;            // steps are rounds
  std::int64_t units_per_sample_ = 1;       // what shares are counted in: more than 1 by cost and in rounds
  std::optional<WorkShares> work_;          // by cost, once the data is known
  State pending_work_;                      // restored, until then
  KnownSizes known_sizes_;
  std::int64_t chunk_size_;                       // that this worker was told
  std::map<WorkerId, std::int64_t> chunk_sizes_;  // found for lack of memory, of all workers

  // The step under way.
  StepPlan plan_;
  double new_local_square_ = 0.0;
  double new_global_square_ = 0.0;
  Phase phase_ = Phase::kBetween;
  bool diagnosing_ = false;

  // These are of the last finished step; moments_known_ says on all replicas alike whether the squares mean anything.
  bool moments_known_ = false;
  double local_square_ = 0.0;
  double global_square_ = 0.0;
  std::optional<StepRecord> record_;

  // For the next progress().
  std::vector<WorkerId> evicted_;
  std::int64_t failed_batch_ = 0;
  bool chunkable_ = false;

  bool stopping_ = false;
  int stop_signal_ = 0;
  std::int64_t rolled_back_for_ = -1;  // the step
};

}  // namespace isochron
