#include "isochron/engine/steps.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <c10/util/ScopeExit.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/utils.h>

#include "isochron/core/random/random.h"

namespace isochron {

Steps::Steps(
    const JobOptions& options,
    Replica& replica,
    JobDatasets& datasets,
    Membership& membership,
    TrainedModel& model,
    StepClock& clock)
    : options_(options), replica_(replica), datasets_(datasets), membership_(membership), model_(model), clock_(clock) {
  model_.tell_waits([this](bool waiting) { note_waiting(waiting); });
  if (options_.handle_signals) {
    signals_.emplace();
  }
}

Steps::~Steps() = default;

void Steps::close() {
  exchange_.reset();
  datasets_.close();
}

std::optional<Batch> Steps::begin() {
  model_.begin_step();  // may wait for others: before the clock starts
  clock_.begin_step();
  const StepPlan& plan = replica_.plan();
  stage_ = Stage::kComputing;
  by_function_ = false;
  by_value_ = false;
  passed_ = false;
  loss_ = 0.0;
  finite_ = true;
  waits_ = {};
  const auto rank = static_cast<std::uint64_t>(replica_.rank());
  torch::manual_seed(mix_key({options_.seed, static_cast<std::uint64_t>(plan.step), rank}));
  Batch batch = take_batch(plan);
  weigh(plan);
  const bool all_count = std::ranges::all_of(plan.slices, [](const Interval& slice) { return slice.size() > 0; });
  model_.begin_forward(plan.learning_rate_factor, /*counts=*/plan.mine.size() > 0, all_count);
  return batch;
}

Batch Steps::take_batch(const StepPlan& plan) {
  BatchSource& source = *datasets_.present().source;
  if (plan.dealt.empty()) {
    return source.take(replica_.sampler(), plan.decision.batch_sizes, static_cast<std::size_t>(replica_.rank()));
  }
  BatchSource::Place mine{.epoch = plan.epoch, .positions = plan.positions(plan.mine)};
  if (mine.positions.empty()) {
    mine.positions = {plan.position};  // counts for nothing
  }
  Sampler next = replica_.sampler();
  next.advance();
  const SamplerState& place = next.state();
  return source.take(mine, {.epoch = place.epoch, .positions = replica_.foresee(place.epoch, place.position)});
}

void Steps::weigh(const StepPlan& plan) {
  weight_ = plan.loss_weight;
  items_ = static_cast<double>(plan.mine.size());
  if (!has_lengths()) {
    return;
  }
  const auto tokens_at = [&](std::int64_t position) {
    const std::int64_t sample = replica_.sampler().sample_at(position);
    return static_cast<double>(lengths()[static_cast<std::size_t>(sample)]);
  };
  items_ = 0.0;
  for (const std::int64_t position : plan.positions(plan.mine)) {
    items_ += tokens_at(position);
  }
  if (options_.weighting == Weighting::kExact) {
    double all = 0.0;
    for (std::int64_t position = plan.position; position < plan.position + plan.step_size; ++position) {
      all += tokens_at(position);
    }
    weight_ = items_ * static_cast<double>(plan.slices.size()) / all;
  }
}

void Steps::require_batch() const {
  if (stage_ == Stage::kTaken) {
    throw std::logic_error(
        "backward() a second time for a batch, whose gradients are averaged; permitted: once, with the sum of its "
        "losses, or for each the optimizers that it is for, as in backward(loss, optimizer)");
  }
  if (!can_be_undone()) {
    throw std::logic_error("backward() without a batch of the loader");
  }
}

// Neither what beginning a pass may wait for others nor the exchange of the pass before is computing.
void Steps::begin_pass(const BackwardPass& pass) {
  require_batch();
  if (!pass.is_last() && options_.rate.rule == RateRule::kAdaScale) {
    throw std::invalid_argument(
        "lr_rule is adascale with a backward() that is told its optimizers; permitted: one backward(loss) a step, "
        "whose gradient AdaScale measures");
  }
  const auto began = StepClock::Clock::now();
  model_.begin_pass(pass);
  if (!pass.is_last()) {
    waits_.time += StepClock::Clock::now() - began;
  }
  if (stage_ == Stage::kPassed) {
    waits_.time += last_wait_;
    ++waits_.count;
  }
  stage_ = Stage::kComputing;
}

void Steps::require_whole(std::int64_t batch) const {
  if (replica_.chunk_size() > 0 && batch > replica_.chunk_size()) {
    throw std::logic_error(
        "backward(loss) with a batch of " + std::to_string(batch) + " samples and micro_batch " +
        std::to_string(replica_.chunk_size()) + ": call backward(batch, loss_of)");
  }
}

StepVerdict Steps::backward(const at::Tensor& loss, const BackwardPass& pass) {
  begin_pass(pass);
  by_value_ = true;
  require_whole(my_batch());
  reduce(loss, weight_, pass, [&] { return loss.item<double>(); });
  return judge(pass);
}

// What a chunk's mean loss counts for in that of the batch.
double Steps::share_of(const at::Tensor& chunk, const at::Tensor& whole) const {
  const auto items = [&](const at::Tensor& target) {
    return static_cast<double>(has_lengths() ? target.ne(kNoTarget).sum().item<std::int64_t>() : target.size(0));
  };
  return items(chunk) / items(whole);
}

StepVerdict Steps::backward(const Batch& batch, const Job::LossOf& loss_of, const BackwardPass& pass) {
  begin_pass(pass);
  by_function_ = true;
  const std::int64_t samples = batch.data.size(0);
  const std::int64_t most = replica_.chunk_size() > 0 ? replica_.chunk_size() : samples;
  double total = 0.0;
  for (std::int64_t first = 0; first < samples; first += most) {
    const std::int64_t size = std::min(most, samples - first);
    const at::Tensor target = batch.target.narrow(0, first, size);
    const at::Tensor loss = loss_of(batch.data.narrow(0, first, size), target);
    const double share = size == samples ? 1.0 : share_of(target, batch.target);
    if (first + size < samples) {
      model_.accumulate(loss, weight_ * share);
      total += share * loss.item<double>();
    } else {
      reduce(loss, weight_ * share, pass, [&] { return total + share * loss.item<double>(); });
    }
  }
  return judge(pass);
}

void Steps::reduce(
    const at::Tensor& loss, double weight, const BackwardPass& pass, const std::function<double()>& mean_loss) {
  const BackwardResult result = [&] {
    const auto over = c10::make_scope_exit([this] { note_waiting(false); });
    return model_.backward(loss, weight, [&] {
      measure(mean_loss());
      if (pass.is_last()) {
        exchange_.emplace(membership_.group(), report());
      }
      note_waiting(true);
    });
  }();
  if (pass.is_last()) {
    replica_.measure_gradient(result.local_square, result.global_square);
  }
  finished_ = clock_.since_start(result.finished);
  last_wait_ = result.finished - result.last_gradient;
}

void Steps::note_waiting(bool waiting) {
  const std::lock_guard lock(waiting_mutex_);
  waiting_ = waiting && stage_ == Stage::kComputing && !passed_;
}

bool Steps::while_waiting(const std::function<void()>& read) {
  const std::lock_guard lock(waiting_mutex_);
  if (waiting_) {
    read();
  }
  return waiting_;
}

// At the last local gradient of a pass.
void Steps::measure(double loss) {
  const SyncBatchNorm::Waits waits = model_.take_waits();
  waits_.time += waits.time;
  waits_.count += waits.count;
  measured_ = clock_.measure(waits_);
  loss_ += loss;
  finite_ = finite_ && (!replica_.plan_under_way().diagnose || model_.gradient_is_finite());
}

StepReport Steps::report() {
  StepReport measured = measured_;
  measured.loss = my_batch() > 0 ? loss_ : 0.0;
  measured.items = my_batch() > 0 ? items_ : 0.0;
  measured.finite = finite_;
  say_rest(measured);
  return replica_.report(measured);
}

void Steps::say_rest(StepReport& measured) const {
  measured.stop = stop_wanted_;
  measured.signal = signals_ ? StopSignal::received() : 0;
  measured.newcomer = replica_.rank() == 0 && membership_.newcomer_is_ready();
}

// All workers have the same averages, so all wait for the reports or none does.
StepVerdict Steps::judge(const BackwardPass& pass) {
  if (options_.on_nonfinite == OnNonFinite::kIgnore || model_.gradient_is_finite()) {
    stage_ = pass.is_last() ? Stage::kTaken : Stage::kPassed;
    passed_ = true;
    return {};
  }
  if (!pass.is_last()) {
    exchange_.emplace(membership_.group(), report());
  }
  reports_ = take_reports();
  return replica_.judge(reports_, /*gradient_is_finite=*/false);
}

std::vector<StepReport> Steps::take_reports() {
  std::vector<StepReport> reports = exchange_->wait();
  exchange_.reset();
  return reports;
}

std::optional<StepOutcome> Steps::finish() {
  model_.end_step();
  if (stage_ == Stage::kPassed) {
    stage_ = Stage::kTaken;  // there is no way back from what is reported
    exchange_.emplace(membership_.group(), report());
  }
  const std::vector<StepReport> reports = take_reports();
  stage_ = Stage::kNone;  // whatever happens below, this step is not finished twice
  return replica_.complete(reports, finished_, clock_.now());
}

std::vector<EventRecord> Steps::redo() {
  model_.undo();
  stage_ = Stage::kDropped;
  return replica_.redo(reports_, clock_.now());
}

StepOutcome Steps::leave_out() {
  model_.undo();
  stage_ = Stage::kDropped;
  return replica_.leave_out(reports_, finished_, clock_.now());
}

void Steps::undo() {
  model_.undo();
  if (replica_.phase() != Replica::Phase::kBetween) {
    replica_.abandon();
  }
  stage_ = Stage::kDropped;
}

// Forward passes may have changed running statistics meanwhile.
void Steps::forget_dropped() {
  if (is_dropped()) {
    model_.undo();
    stage_ = Stage::kNone;
  }
}

void Steps::leave_group() {
  if (can_be_undone()) {
    undo();
  }
  if (!is_dropped()) {
    stage_ = Stage::kNone;
  }
  exchange_.reset();
}

}  // namespace isochron
