#include "isochron/core/replica/replica.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

// No worker can use a higher bound than B, and policies compare bounds.
std::vector<Worker> limited(std::vector<Worker> workers, std::int64_t global_batch) {
  for (Worker& worker : workers) {
    worker.max_batch = std::min(worker.max_batch, global_batch);
  }
  return workers;
}

std::vector<Worker> numbered(std::vector<Worker> workers) {
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    workers[rank].id = rank;
  }
  return workers;
}

std::string advice(Replica::Phase phase, std::int64_t step) {
  const std::string which = "step " + std::to_string(step);
  switch (phase) {
    case Replica::Phase::kBetween:
      return "no step is under way; take the next batch (plan) first";
    case Replica::Phase::kComputing:
      return "the batch of " + which +
             " is out, and its gradients are not there yet; compute them (report), or give the step up (abandon), "
             "first";
    case Replica::Phase::kComputed:
      return "the gradients of " + which +
             " are there, but the step is not finished; finish it (complete, redo), or give it up (abandon), first";
  }
  return "";
}

}  // namespace

Replica::Replica(
    Unjoined /*unjoined*/, JobSettings options, std::vector<Worker> members, int rank, const LocalOptions& local)
    : options_(std::move(options)),
      members_(limited(std::move(members), options_.global_batch)),
      rank_(rank),
      next_id_(members_.size()),
      known_sizes_(local.cpu),
      chunk_size_(local.chunk_size) {
  if (options_.sync == Sync::kLocal) {
    rounds_.emplace(options_.rounds.steps, options_.rounds.network_share);
    units_per_sample_ = Rounds::kUnitsPerSample;
  }
  if (rank < 0 || rank >= std::ssize(members_)) {
    throw std::invalid_argument(
        "rank is " + std::to_string(rank) + "; permitted: 0 to " + std::to_string(std::ssize(members_) - 1));
  }
  if (chunk_size_ < 0) {
    throw std::invalid_argument("chunk_size is " + std::to_string(chunk_size_) + "; permitted: 0 or more");
  }
}

Replica::Replica(JobSettings options, std::vector<Worker> workers, int rank, const LocalOptions& local)
    : Replica(Unjoined{}, std::move(options), numbered(std::move(workers)), rank, local) {
  controller_ = make_controller(with_ceilings(), units_per_sample_);
  joined_ = true;
}

Replica Replica::newcomer(JobSettings options, Worker self, const LocalOptions& local) {
  return {Unjoined{}, std::move(options), {std::move(self)}, 0, local};
}

Controller Replica::make_controller(std::vector<Worker> workers, std::int64_t units_per_sample) const {
  return {
      {.workers = std::move(workers),
       .global_batch = options_.global_batch * units_per_sample,
       .units_per_sample = units_per_sample},
      {.policy = options_.policy, .rate = options_.rate}};
}

// The one place that says what order calls must have.
void Replica::require(Phase phase, const char* call) const {
  if (phase_ != phase) {
    throw OrderError(std::string(call) + " was called out of order: " + advice(phase_, step()));
  }
}

const std::vector<Worker>& Replica::workers() const {
  return controller_ ? controller_->roster().workers : members_;
}

const Decision& Replica::decision() const {
  if (!joined_) {
    throw OrderError(
        "this worker has not joined the job yet; take over the state of another one (take_over) and adopt() the "
        "settlement first");
  }
  return controller_->decision();
}

const EpochCursor& Replica::cursor() const {
  if (!cursor_) {
    throw OrderError("the job has no data yet; name its dataset (open, open_stream) first");
  }
  return *cursor_;
}

const Sampler& Replica::sampler() const {
  if (cursor().is_stream()) {
    throw OrderError("a stream has no order of its own; read its samples in theirs");
  }
  return *cursor().sampler();
}

std::int64_t Replica::epoch() const {
  return cursor_ ? cursor_->epoch() : pending_place_ ? pending_place_->epoch : 0;
}

std::int64_t Replica::position() const {
  return cursor_ ? cursor_->position() : pending_place_ ? pending_place_->position : 0;
}

SamplerOptions Replica::sampler_options(std::int64_t dataset_size) const {
  return {
      .dataset_size = dataset_size,
      .global_batch = options_.global_batch,
      .seed = options_.seed,
      .last_batch = options_.last_batch};
}

void Replica::open(std::int64_t dataset_size) {
  if (by_cost()) {
    throw std::invalid_argument(
        "the dataset is without the lengths of its samples; permitted: with them, since the job deals by cost");
  }
  open_at(EpochCursor(sampler_options(dataset_size)));
}

void Replica::open(SampleWorks works) {
  open_by_cost(WorkShares(std::move(works)));
}

void Replica::open(const ArrivingWorks& works) {
  open_by_cost(WorkShares(works));
}

void Replica::open_by_cost(WorkShares shares) {
  if (rounds_) {
    throw std::invalid_argument("the dataset has lengths of its samples; permitted: without them with sync 'local'");
  }
  if (!by_cost() && (cursor_ || step() > 0)) {
    throw std::invalid_argument(
        "the dataset has lengths of its samples; permitted: without them, since the job has begun to deal by count");
  }
  for (const Worker& worker : members_) {
    require_between("granularity of " + name_of(worker) + " with lengths", worker.granularity, 1, 1);
  }
  if (!pending_work_.numbers.empty()) {
    restore_state(shares, pending_work_);
  } else if (work_) {
    restore_state(shares, save_state(*work_));
  }
  const SamplerOptions order = sampler_options(shares.dataset_size());
  open_at(order.dataset_size > 0 ? EpochCursor(order) : EpochCursor::of_stream(order));
  work_ = std::move(shares);
  pending_work_ = {};
  if (!by_cost()) {
    units_per_sample_ = WorkShares::kUnitsPerSample;
    if (controller_) {
      controller_ = make_controller(with_ceilings(), units_per_sample_);
    }
  }
}

double Replica::work_per_sample() const {
  return work_ ? work_->work_per_sample(members_[static_cast<std::size_t>(rank_)]) : 0.0;
}

void Replica::open_stream() {
  if (by_cost()) {
    throw std::invalid_argument(
        "the data is a stream without the lengths of its samples; permitted: with them, since the job deals by cost");
  }
  open_at(EpochCursor::of_stream(sampler_options(0)));
}

void Replica::open_at(EpochCursor cursor) {
  if (cursor_) {
    if (cursor_->dataset_size() != cursor.dataset_size()) {
      throw std::invalid_argument(
          "the dataset's size is " + std::to_string(cursor.dataset_size()) +
          "; permitted: that of the job's first dataset, " + std::to_string(cursor_->dataset_size()));
    }
    return;
  }
  if (pending_place_) {
    cursor.go_to(*pending_place_);
    pending_place_.reset();
  }
  cursor_ = std::move(cursor);
}

std::vector<std::int64_t> StepPlan::batches() const {
  std::vector<std::int64_t> sizes;
  sizes.reserve(slices.size());
  std::ranges::transform(slices, std::back_inserter(sizes), &Interval::size);
  return sizes;
}

std::vector<std::int64_t> StepPlan::positions(const Interval& slice) const {
  std::vector<std::int64_t> found(static_cast<std::size_t>(slice.size()));
  std::iota(found.begin(), found.end(), slice.first);
  for (std::int64_t& one : found) {
    one = dealt.empty() ? one : dealt[static_cast<std::size_t>(one - position)];
  }
  return found;
}

const StepPlan& Replica::plan(std::int64_t from_stream, std::int64_t most) {
  require(Phase::kBetween, "plan()");
  std::int64_t size = cursor().step_size(from_stream, round_steps());
  if (rounds_) {
    size = most > 0 && from_stream == 0 ? std::min(size, most) : size;
    return plan_slices(size, cursor_->slices_of(deal(size, decision().batch_sizes)));
  }
  if (work_ && work_->arrive()) {
    throw OrderError("the data is dealt by cost as it arrives; plan its steps by the works of samples (plan_arrived)");
  }
  if (work_) {
    (void)decision();
    return plan_dealt(size, work_->deal(sampler(), cursor().position(), size, *controller_, members_));
  }
  return plan_slices(size, cursor_->slices(decision().batch_sizes, size));
}

const StepPlan& Replica::plan_arrived(std::span<const float> works) {
  require(Phase::kBetween, "plan_arrived()");
  if (!work_ || !work_->arrive()) {
    throw OrderError("plan_arrived() is of data that is dealt by cost as it arrives; plan() the step of other data");
  }
  (void)decision();
  const std::int64_t size = cursor().step_size(cursor().is_stream() ? std::ssize(works) : 0, 1);
  isochron::require(
      std::ssize(works) == size,
      "works of a step that arrived",
      std::ssize(works),
      std::to_string(size) + ", its samples");
  return plan_dealt(size, work_->deal_arrived(works, cursor().position(), *controller_, members_));
}

const StepPlan& Replica::plan_dealt(std::int64_t size, WorkShares::Dealt dealt) {
  std::vector<std::int64_t> counts;
  std::ranges::transform(dealt.shares, std::back_inserter(counts), &WorkShares::Share::samples);
  return plan_slices(size, cursor_->slices_of(counts), std::move(dealt));
}

std::vector<std::int64_t> Replica::foresee(std::int64_t epoch, std::int64_t position) const {
  (void)decision();
  Sampler there = sampler();
  if (!work_ || work_->arrive()) {
    throw OrderError("foresee() is of jobs that deal by cost; the split says who takes which positions otherwise");
  }
  there.restore({.seed = options_.seed, .epoch = epoch, .position = position});
  StepPlan plan{.position = there.state().position};
  WorkShares::Dealt dealt = work_->deal(there, plan.position, there.step_size(), *controller_, members_);
  plan.dealt = std::move(dealt.positions);
  std::int64_t first = plan.position;
  for (int rank = 0; rank < rank_; ++rank) {
    first += dealt.shares[static_cast<std::size_t>(rank)].samples;
  }
  return plan.positions({.first = first, .last = first + dealt.shares[static_cast<std::size_t>(rank_)].samples});
}

const StepPlan& Replica::plan_parts(std::span<const std::int64_t> samples) {
  require(Phase::kBetween, "plan_parts()");
  const bool each = samples.size() == workers().size() && std::ranges::all_of(samples, [](std::int64_t count) {
                      return count >= 0 && count <= kMostPositions;
                    });
  if (!each) {
    throw std::invalid_argument("samples of a stream's parts; permitted: 0 or more of every worker");
  }
  const std::int64_t size =
      cursor().step_size(std::accumulate(samples.begin(), samples.end(), std::int64_t{0}), round_steps());
  return plan_slices(size, cursor_->slices_of(samples));
}

const StepPlan& Replica::plan_slices(std::int64_t size, std::vector<Interval> slices, WorkShares::Dealt dealt) {
  const Decision& split = decision();
  plan_ = {
      .step = split.step,
      .epoch = cursor_->epoch(),
      .position = cursor_->position(),
      .step_size = size,
      .local_steps = rounds_ ? Rounds::steps_of(size, options_.global_batch) : 1,
      .slices = std::move(slices),
      .dealt = std::move(dealt.positions),
      .shares = std::move(dealt.shares),
      .learning_rate_factor = split.learning_rate_factor,
      .diagnose = diagnosing_,
      .decision = split};
  plan_.mine = plan_.slices[static_cast<std::size_t>(rank_)];
  plan_.loss_weight = loss_weight();
  plan_.digest = digest();
  phase_ = Phase::kComputing;
  return plan_;
}

// Everything that decides about the step: its samples, who takes them, and the learning rate.
std::uint64_t Replica::digest() const {
  std::uint64_t key = mix_key(
      {static_cast<std::uint64_t>(plan_.step),
       static_cast<std::uint64_t>(plan_.epoch),
       static_cast<std::uint64_t>(plan_.position),
       static_cast<std::uint64_t>(plan_.step_size),
       std::bit_cast<std::uint64_t>(plan_.learning_rate_factor)});
  for (std::size_t k = 0; k < plan_.slices.size(); ++k) {
    const std::uint64_t share = mix_key(
        {workers()[k].id,
         static_cast<std::uint64_t>(plan_.slices[k].size()),
         static_cast<std::uint64_t>(plan_.decision.batch_sizes[k])});
    key = mix_key({share, key});  // in this order, so that a worker's need not wait for the one before
  }
  for (const std::int64_t position : plan_.dealt) {
    key = mix_key({key, static_cast<std::uint64_t>(position)});
  }
  for (const WorkShares::Share& share : plan_.shares) {
    key = mix_key({key, std::bit_cast<std::uint64_t>(share.work)});
  }
  return key;
}

double loss_weight(std::int64_t batch, std::int64_t step_size, std::int64_t workers) {
  if (step_size <= 0 || workers <= 0 || batch < 0 || batch > step_size) {
    throw std::invalid_argument(
        "local batch is " + std::to_string(batch) + " of " + std::to_string(step_size) + " on " +
        std::to_string(workers) + " workers; permitted: 0 to the global batch, which is above 0 like the workers");
  }
  return static_cast<double>(batch) * static_cast<double>(workers) / static_cast<double>(step_size);
}

double Replica::loss_weight() const {
  if (plan_.mine.size() == 0) {
    return 0.0;
  }
  if (options_.weighting == Weighting::kMean || rounds_) {
    return 1.0;  // in a round, changes are weighted in place of losses
  }
  return isochron::loss_weight(plan_.mine.size(), plan_.step_size, std::ssize(plan_.slices));
}

std::int64_t Replica::chunk_size() const {
  const auto found = chunk_sizes_.find(members_[static_cast<std::size_t>(rank_)].id);
  if (found == chunk_sizes_.end()) {
    return chunk_size_;
  }
  return chunk_size_ > 0 ? std::min(chunk_size_, found->second) : found->second;
}

std::int64_t Replica::held_at_once() const {
  const std::int64_t batch = Rounds::steps_of(plan_.mine.size(), plan_.local_steps);
  return chunk_size() > 0 ? std::min(batch, chunk_size()) : batch;
}

std::int64_t Replica::held_units() const {
  const std::int64_t held = held_at_once();
  if (units_per_sample_ == 1 || held < Rounds::steps_of(plan_.mine.size(), plan_.local_steps)) {
    return held * units_per_sample_;
  }
  if (rounds_) {
    return held * units_per_sample_ - 1;
  }
  const auto me = static_cast<std::size_t>(rank_);
  return work_->units(workers()[me], plan_.shares[me]) | 1;
}

StepReport Replica::report(StepReport measured) {
  require(Phase::kComputing, "report()");
  measured.batch = plan_.mine.size();
  if (measured.items < 0.0) {
    measured.items = static_cast<double>(measured.batch);
  }
  measured.local_square = local_square_;
  measured.global_square = global_square_;
  measured.digest = plan_.digest;
  measured.stop = measured.stop || measured.signal != 0;
  if (measured.out_of_memory) {
    measured.failed_batch = std::max<std::int64_t>(held_units(), 1);
  } else {
    measured.failed_batch = 0;
    const bool known = known_sizes_.add(Rounds::steps_of(measured.batch, plan_.local_steps));
    measured.warm = known && measured.warm;
  }
  new_local_square_ = 0.0;
  new_global_square_ = 0.0;
  phase_ = Phase::kComputed;
  return measured;
}

void Replica::measure_gradient(double local_square, double global_square) {
  require(Phase::kComputed, "measure_gradient()");
  new_local_square_ = static_cast<double>(plan_.mine.size()) / static_cast<double>(plan_.step_size) * local_square;
  new_global_square_ = global_square;
}

void Replica::check_reports(std::span<const StepReport> reports) const {
  check_agreement(reports, plan_.batches(), step());
}

double Replica::average_weight(std::span<const StepReport> reports) const {
  require(Phase::kComputed, "average_weight()");
  check_reports(reports);
  const double mine = reports[static_cast<std::size_t>(rank_)].items;
  if (options_.weighting == Weighting::kMean) {
    const auto busy = std::ranges::count_if(reports, [](const StepReport& report) { return report.items > 0.0; });
    return mine > 0.0 ? 1.0 / static_cast<double>(busy) : 0.0;
  }
  double items = 0.0;
  for (const StepReport& report : reports) {
    items += report.items;
  }
  return items > 0.0 ? mine / items : 0.0;
}

StepVerdict Replica::judge(std::span<const StepReport> reports, bool gradient_is_finite) const {
  require(Phase::kComputed, "judge()");
  check_reports(reports);
  StepVerdict verdict;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].failed_batch > 0) {
      verdict.action = StepAction::kRedo;
      verdict.ranks.push_back(static_cast<int>(rank));
    }
  }
  const std::string where = "step " + std::to_string(step()) + ": ";
  if (verdict.action == StepAction::kRedo) {
    verdict.message = where + "memory ran out";
    return verdict;
  }
  if (gradient_is_finite || options_.on_nonfinite == OnNonFinite::kIgnore) {
    return verdict;
  }
  verdict.ranks = non_finite_ranks(reports);
  verdict.message = where + "the gradient is not finite";
  for (const int rank : verdict.ranks) {
    const auto place = static_cast<std::size_t>(rank);
    verdict.message += (rank == verdict.ranks.front() ? " on " : ", ") + workers()[place].name + " (rank " +
                       std::to_string(rank) + ", loss " + std::to_string(reports[place].loss) + ")";
  }
  if (verdict.ranks.empty() && !diagnosing_) {
    verdict.action = StepAction::kRedo;  // everybody looks at its own gradient then
  } else if (options_.on_nonfinite == OnNonFinite::kStop) {
    verdict.action = StepAction::kStop;
  } else if (options_.on_nonfinite == OnNonFinite::kRollBack && rolled_back_for_ != step()) {
    verdict.action = StepAction::kRollBack;
  } else {
    verdict.action = StepAction::kLeaveOut;
  }
  return verdict;
}

StepOutcome Replica::complete(std::span<const StepReport> reports, double finished, double now) {
  require(Phase::kComputed, "complete()");
  return finish(reports, finished, now, /*taken=*/true);
}

StepOutcome Replica::leave_out(std::span<const StepReport> reports, double finished, double now) {
  require(Phase::kComputed, "leave_out()");
  const StepVerdict verdict = judge(reports, /*gradient_is_finite=*/false);
  const WorkerId first = verdict.ranks.empty() ? 0 : workers()[static_cast<std::size_t>(verdict.ranks.front())].id;
  EventRecord left_out = event(Event::kNonFinite, first, verdict.message, now);
  StepOutcome outcome = finish(reports, finished, now, /*taken=*/false);
  outcome.events.push_back(std::move(left_out));
  return outcome;
}

StepOutcome Replica::finish(std::span<const StepReport> reports, double finished, double now, bool taken) {
  check_reports(reports);
  const auto failed = std::ranges::find_if(reports, [](const StepReport& report) { return report.failed_batch > 0; });
  if (failed != reports.end()) {
    throw OrderError(
        "rank " + std::to_string(failed - reports.begin()) + " ran out of memory in step " + std::to_string(step()) +
        ", so that the step did not happen; deal it anew (redo)");
  }
  record_ =
      make_record(reports, workers(), decision(), {.epoch = plan_.epoch, .position = plan_.position}, finished, now);
  for (std::size_t k = 0; k < plan_.shares.size(); ++k) {
    record_->workers[k].work = plan_.shares[k].work;
    record_->workers[k].padding = plan_.shares[k].padding;
  }
  cursor_->finish(plan_.slices, workers());
  for (const StepReport& report : reports) {
    stopping_ = stopping_ || report.stop;
    stop_signal_ = std::max<int>(stop_signal_, report.signal);
  }
  if (moments_known_) {
    controller_->observe_gradients(make_moments(reports));
  }
  local_square_ = new_local_square_;
  global_square_ = new_global_square_;
  moments_known_ = taken && plan_.step_size == options_.global_batch;  // a short step's gradient varies more
  diagnosing_ = false;
  StepTelemetry telemetry = make_telemetry(reports, workers(), step());
  if (rounds_) {
    Rounds::bring_to_step(telemetry, plan_.local_steps);
    rounds_->observe(reports, plan_.local_steps);
  } else if (work_) {
    work_->learn(workers(), plan_.shares, telemetry);
    for (std::size_t k = 0; k < telemetry.workers.size(); ++k) {
      telemetry.workers[k].batch = work_->units(workers()[k], plan_.shares[k]);
    }
  }
  controller_->observe(telemetry);
  if (ceilings_.raise(step(), options_.global_batch * units_per_sample_)) {
    fit_to_members();
  }
  phase_ = Phase::kBetween;
  return {
      .record = *record_,
      .stop = stopping_,
      .stop_signal = stop_signal_,
      .newcomer = reports.front().newcomer,
      .epoch_finished = cursor_->epoch() != record_->epoch,
      .non_finite = non_finite_ranks(reports)};
}

std::vector<EventRecord> Replica::redo(std::span<const StepReport> reports, double now) {
  require(Phase::kComputed, "redo()");
  check_reports(reports);
  std::vector<MemoryFailure> failures;
  for (std::size_t k = 0; k < reports.size(); ++k) {
    if (reports[k].failed_batch > 0) {
      failures.push_back(
          {.worker = workers()[k].id, .batch = reports[k].failed_batch, .chunkable = reports[k].chunkable});
    }
  }
  phase_ = Phase::kBetween;
  std::vector<EventRecord> events;
  diagnosing_ = failures.empty();
  note_memory_failures(failures, now, events);
  deal_anew(failures);
  return events;
}

void Replica::abandon() {
  if (phase_ == Phase::kBetween) {
    require(Phase::kComputing, "abandon()");
  }
  phase_ = Phase::kBetween;
}

bool Replica::abandon_for_memory(bool chunkable) {
  if (phase_ == Phase::kBetween) {
    require(Phase::kComputing, "abandon_for_memory()");
  }
  if (held_at_once() <= 1) {
    return false;
  }
  failed_batch_ = held_units();
  chunkable_ = chunkable;
  phase_ = Phase::kBetween;
  return true;
}

void Replica::end_epoch() {
  require(Phase::kBetween, "end_epoch()");
  (void)cursor();
  cursor_->end_epoch();
}

State Replica::change_data(std::int64_t dataset_size, const std::optional<State>& place) {
  require(Phase::kBetween, "change_data()");
  if (by_cost()) {
    throw std::invalid_argument("a second dataset; permitted: one, since the job deals by cost");
  }
  DataPlace left = cursor().place();
  EpochCursor next =
      dataset_size > 0 ? EpochCursor(sampler_options(dataset_size)) : EpochCursor::of_stream(sampler_options(0));
  if (place) {
    StateExchange reading = StateExchange::restore(*place);
    DataPlace there;
    there.exchange(reading);
    next.go_to(there);
  }
  cursor_ = std::move(next);
  State saved;
  StateExchange writing = StateExchange::save(saved);
  left.exchange(writing);
  return saved;
}

}  // namespace isochron
