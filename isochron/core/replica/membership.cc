// How a replica follows those who come and go, and what memory permits; and the replica as a value.
#include <algorithm>
#include <string>
#include <utility>

#include "isochron/core/error.h"
#include "isochron/core/replica/replica.h"

namespace isochron {

EventRecord Replica::event(Event event, WorkerId worker, std::string words, double now) const {
  return {
      .step = step(),
      .seconds = now,
      .event = std::string(to_string(event)),
      .worker = worker,
      .words = std::move(words)};
}

// Bounds and ceilings.

std::vector<Worker> Replica::with_ceilings() const {
  std::vector<Worker> workers = members_;
  for (Worker& worker : workers) {
    if (units_per_sample_ > 1) {
      worker = rounds_ ? Rounds::in_units(std::move(worker)) : WorkShares::in_units(std::move(worker));
    }
    worker.max_batch = ceilings_.limit(worker.id, std::max<std::int64_t>(worker.min_batch, 1), worker.max_batch);
    if (rounds_ && worker.max_batch < kNoLimit) {
      // A part of a sample more would be a whole sample in some of the round's steps, which memory does not hold.
      worker.max_batch -= worker.max_batch % units_per_sample_;
      worker.max_batch = std::max({worker.max_batch, worker.min_batch, units_per_sample_});
    }
  }
  return workers;
}

void Replica::fit_to_members() {
  if (std::vector<Worker> now = with_ceilings(); !same_workers(workers(), now)) {
    controller_->change_workers(std::move(now));
  }
}

std::string Replica::trouble_of_fitting() {
  try {
    fit_to_members();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

void Replica::note_memory_failures(
    std::span<const MemoryFailure> failures, double now, std::vector<EventRecord>& events) {
  for (const MemoryFailure& failure : failures) {
    const std::int64_t samples = (failure.batch + units_per_sample_ - 1) / units_per_sample_;
    events.push_back(event(
        Event::kOutOfMemory,
        failure.worker,
        "with " + std::string(by_cost() ? "the work of about " : "") + std::to_string(samples) + " samples",
        now));
    if (is_of_chunk(failure)) {
      chunk_sizes_[failure.worker] =
          std::max<std::int64_t>(MemoryCeilings::below(failure.batch) / units_per_sample_, 1);
      continue;
    }
    ceilings_.failed(failure.worker, failure.batch, step());
  }
}

bool Replica::is_of_chunk(const MemoryFailure& failure) const {
  const auto found = std::ranges::find(workers(), failure.worker, &Worker::id);
  if (!failure.chunkable || failure.batch <= 1 || found == workers().end()) {
    return false;
  }
  if (units_per_sample_ > 1) {
    return failure.batch % units_per_sample_ == 0;
  }
  return failure.batch < decision().batch_sizes[static_cast<std::size_t>(found - workers().begin())];
}

void Replica::deal_anew(std::span<const MemoryFailure> failures) {
  std::string trouble = trouble_of_fitting();
  if (!trouble.empty() && change_to_chunks(failures)) {
    trouble = trouble_of_fitting();
  }
  if (!trouble.empty() && ceilings_.give_up(step())) {
    trouble = trouble_of_fitting();
  }
  if (!trouble.empty()) {
    throw Error(
        "step " + std::to_string(step()) + ": the workers that are left cannot take the global batch (" + trouble +
        ")");
  }
}

bool Replica::change_to_chunks(std::span<const MemoryFailure> failures) {
  if (failures.empty() || !std::ranges::all_of(failures, &MemoryFailure::chunkable)) {
    return false;
  }
  for (const MemoryFailure& failure : failures) {
    if (is_of_chunk(failure)) {
      continue;
    }
    if (const auto who = std::ranges::find(members_, failure.worker, &Worker::id); who != members_.end()) {
      chunk_sizes_[who->id] =
          std::max<std::int64_t>(ceilings_.limit(who->id, 1, who->max_batch) / units_per_sample_, 1);
    }
    ceilings_.forget(failure.worker);
  }
  return true;
}

void Replica::change_bounds(std::span<const BatchBounds> bounds) {
  if (bounds.size() != members_.size()) {
    throw std::invalid_argument(
        "bounds are of " + std::to_string(bounds.size()) + " workers; permitted: those of all " +
        std::to_string(members_.size()));
  }
  std::vector<Worker> workers = members_;
  for (std::size_t k = 0; k < bounds.size(); ++k) {
    workers[k].min_batch = bounds[k].min_batch;
    workers[k].max_batch = bounds[k].max_batch;
  }
  change_workers(std::move(workers));
}

void Replica::change_workers(std::vector<Worker> workers) {
  require(Phase::kBetween, "change_workers()");
  (void)decision();
  if (!std::ranges::equal(workers, members_, {}, &Worker::id, &Worker::id)) {
    throw std::invalid_argument("the workers are not those of the job; permitted: its members, by rank");
  }
  members_.swap(workers);
  for (Worker& worker : members_) {
    worker.max_batch = std::min(worker.max_batch, options_.global_batch);
  }
  try {
    fit_to_members();
  } catch (const std::invalid_argument&) {
    members_.swap(workers);
    throw;
  }
}

// Coming together.

void Replica::note_eviction(int rank) {
  ISO_CHECK(rank >= 0 && rank < std::ssize(members_), "a rank that nobody has");
  evicted_.push_back(members_[static_cast<std::size_t>(rank)].id);
}

ProgressReport Replica::progress(double now) const {
  if (phase_ == Phase::kComputing) {
    require(Phase::kBetween, "progress()");
  }
  return {
      .progress = joined() ? 2 * step() + (phase_ == Phase::kComputed ? 1 : 0) : ProgressReport::kNothing,
      .self = members_[static_cast<std::size_t>(rank_)],
      .failed_batch = failed_batch_,
      .chunkable = chunkable_,
      .moments_known = moments_known_,
      .next_id = next_id_,
      .evicted = evicted_,
      .clock = now};
}

std::optional<StepRecord> Replica::finish_unreported(const Settlement& settlement, double now) {
  if (!settlement.unfinished || phase_ != Phase::kComputed || 2 * step() + 2 != settlement.progress) {
    return std::nullopt;
  }
  record_ = make_unreported_record(
      plan_.batches(), workers(), decision(), {.epoch = plan_.epoch, .position = plan_.position}, now);
  cursor_->finish(plan_.slices, workers());
  moments_known_ = false;
  diagnosing_ = false;
  controller_->observe({.step = step()});
  phase_ = Phase::kBetween;
  return record_;
}

void Replica::take_over(const State& state) {
  const SavedReplica saved = SavedReplica::from_state(state);
  saved.check_options(this->saved());
  follow(saved);
  next_id_ = saved.next_id;
  stopping_ = saved.stopping;
  stop_signal_ = static_cast<int>(saved.stop_signal);
  rolled_back_for_ = saved.rolled_back_for;
}

std::vector<EventRecord> Replica::adopt(const Settlement& settlement, int rank, double now) {
  if (!controller_ || 2 * step() + (phase_ == Phase::kComputed ? 1 : 0) != settlement.progress) {
    throw OrderError(
        "adopt() was called out of order: this worker is not as far as the others; take over the state of rank " +
        std::to_string(settlement.leader) + " (take_over), or count its last step (finish_unreported), first");
  }
  require(Phase::kBetween, "adopt()");
  ISO_CHECK(rank >= 0 && rank < std::ssize(settlement.workers), "a rank that nobody has");
  std::vector<EventRecord> events;
  const std::vector<Worker> gone = missing(workers(), settlement.workers);
  for (const Worker& worker : gone) {
    const bool evicted = std::ranges::find(settlement.evicted, worker.id) != settlement.evicted.end();
    events.push_back(event(evicted ? Event::kEvicted : Event::kDeath, worker.id, worker.name, now));
    ceilings_.forget(worker.id);
    chunk_sizes_.erase(worker.id);
  }
  for (const Worker& worker : settlement.joined) {
    events.push_back(event(Event::kJoin, worker.id, worker.name, now));
  }
  note_memory_failures(settlement.out_of_memory, now, events);
  members_ = settlement.workers;
  rank_ = rank;
  joined_ = true;
  next_id_ = settlement.next_id;
  // The moments of a step are the sum over all who took part in it, and every replica must know whether they count.
  moments_known_ = settlement.moments_known && gone.empty() && settlement.behind.empty();
  diagnosing_ = false;
  failed_batch_ = 0;
  chunkable_ = false;
  evicted_.clear();
  deal_anew(settlement.out_of_memory);
  return events;
}

// The replica as a value.

SavedReplica Replica::saved() const {
  SavedReplica saved;
  saved.options = option_texts(options_, kCheckpointed);
  saved.roster = workers();
  saved.next_id = next_id_;
  if (controller_) {
    saved.controller = controller_->state();
  }
  if (rounds_) {
    Rounds learned = *rounds_;
    saved.rounds = save_state(learned);
  }
  if (work_) {
    WorkShares learned = *work_;
    saved.work = save_state(learned);
  } else {
    saved.work = pending_work_;
  }
  saved.ceilings = ceilings_;
  saved.chunk_sizes = chunk_sizes_;
  saved.place = cursor_ ? std::optional(cursor_->place()) : pending_place_;
  saved.record = record_;
  saved.stopping = stopping_;
  saved.stop_signal = stop_signal_;
  saved.rolled_back_for = rolled_back_for_;
  return saved;
}

State Replica::state() const {
  require(Phase::kBetween, "state()");
  return state_before_step();
}

// What a step changes it does in complete() and its like.
State Replica::state_before_step() const {
  (void)decision();
  return saved().to_state();
}

void Replica::follow(const SavedReplica& saved) {
  if (saved.rounds.numbers.empty() == rounds_.has_value()) {
    const std::string permitted = rounds_ ? "another one, as in the checkpoint" : "'local', as in the checkpoint";
    refuse("sync", in_quotes(to_string(options_.sync)), permitted);
  }
  const bool by_count = saved.work.numbers.empty() && !rounds_;
  const std::int64_t units = by_count ? 1 : rounds_ ? Rounds::kUnitsPerSample : WorkShares::kUnitsPerSample;
  if (cursor_ && units != units_per_sample_) {
    throw std::invalid_argument(
        by_cost() ? "the dataset has lengths of its samples; permitted: without them, as the checkpoint's job"
                  : "the dataset is without the lengths of its samples; permitted: with them, as the checkpoint's job");
  }
  Controller controller = make_controller(saved.roster, units);
  controller.restore(saved.controller);
  std::optional<Rounds> rounds = rounds_;
  if (rounds) {
    restore_state(*rounds, saved.rounds);
  }
  std::optional<WorkShares> work = work_;
  if (work) {
    restore_state(*work, saved.work);
  }
  if (cursor_ && saved.place) {
    cursor_->go_to(*saved.place);
  } else if (!cursor_) {
    pending_place_ = saved.place;
  }
  // Nothing throws from here on.
  controller_ = std::move(controller);
  rounds_ = rounds;
  units_per_sample_ = units;
  pending_work_ = work ? State{} : saved.work;
  work_ = std::move(work);
  ceilings_ = saved.ceilings;
  chunk_sizes_.insert(saved.chunk_sizes.begin(), saved.chunk_sizes.end());  // what was found since is smaller
  record_ = saved.record;
  moments_known_ = false;
  diagnosing_ = false;
  phase_ = Phase::kBetween;
}

void Replica::restore(const State& state) {
  require(Phase::kBetween, "restore()");
  const SavedReplica saved = SavedReplica::from_state(state);
  saved.check_options(this->saved());
  follow(saved);
  next_id_ = saved.give_ids(members_);
  deal_anew({});
}

std::vector<EventRecord> Replica::roll_back(const State& state, const std::string& message, double now) {
  const SavedReplica saved = SavedReplica::from_state(state);
  saved.check_options(this->saved());
  const std::int64_t failed = step();
  follow(saved);
  deal_anew({});
  rolled_back_for_ = failed;
  return {event(Event::kRollback, 0, message, now)};
}

}  // namespace isochron
