#include "isochron/engine/steps.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/utils.h>

#include "isochron/core/random/random.h"

namespace isochron {

Steps::Steps(const JobOptions& options, Replica& replica, Membership& membership, TrainedModel& model, StepClock& clock)
    : options_(options), replica_(replica), membership_(membership), model_(model), clock_(clock) {
  if (options_.handle_signals) {
    signals_.emplace();
  }
}

Steps::~Steps() = default;

void Steps::open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) {
  if (dataset_ == nullptr) {
    replica_.open(dataset->size());
    const SamplerOptions order{
        .dataset_size = dataset->size(),
        .global_batch = options_.global_batch,
        .seed = options_.seed,
        .last_batch = options_.last_batch};
    source_ = std::make_unique<BatchSource>(
        dataset,
        order,
        loader,
        data::PrefetchOptions{.threads = options_.prefetch_threads, .capacity = 0},
        options_.device);
    dataset_ = dataset;
  }
  if (dataset != dataset_) {
    throw std::logic_error("loader() with a second dataset; a job trains on one");
  }
}

void Steps::close() {
  exchange_.reset();
  source_.reset();
}

Batch Steps::begin() {
  model_.begin_step();  // may wait for others: before the clock starts
  clock_.begin_step();
  const StepPlan& plan = replica_.plan();
  stage_ = Stage::kComputing;
  by_function_ = false;
  const auto rank = static_cast<std::uint64_t>(replica_.rank());
  torch::manual_seed(mix_key({options_.seed, static_cast<std::uint64_t>(plan.step), rank}));
  Batch batch = source_->take(replica_.sampler(), plan.decision.batch_sizes, rank);
  model_.begin_forward(plan.learning_rate_factor, /*counts=*/plan.mine.size() > 0);
  return batch;
}

void Steps::require_batch() const {
  if (is_taken()) {
    throw std::logic_error(
        "backward() a second time for a batch, whose gradients are averaged; permitted: once, with the sum of its "
        "losses");
  }
  if (!is_computing()) {
    throw std::logic_error("backward() without a batch of the loader");
  }
}

StepVerdict Steps::backward(const at::Tensor& loss) {
  require_batch();
  if (replica_.chunk_size() > 0 && my_batch() > replica_.chunk_size()) {
    throw std::logic_error(
        "backward(loss) with a batch of " + std::to_string(my_batch()) + " samples and micro_batch " +
        std::to_string(replica_.chunk_size()) + ": call backward(batch, loss_of)");
  }
  reduce(loss, replica_.plan_under_way().loss_weight, [&] { return loss.item<double>(); });
  return judge();
}

StepVerdict Steps::backward(const Batch& batch, const Job::LossOf& loss_of) {
  require_batch();
  by_function_ = true;
  const double weight = replica_.plan_under_way().loss_weight;
  const std::int64_t samples = batch.data.size(0);
  const std::int64_t most = replica_.chunk_size() > 0 ? replica_.chunk_size() : samples;
  double total = 0.0;
  for (std::int64_t first = 0; first < samples; first += most) {
    const std::int64_t size = std::min(most, samples - first);
    const at::Tensor loss = loss_of(batch.data.narrow(0, first, size), batch.target.narrow(0, first, size));
    const double share = static_cast<double>(size) / static_cast<double>(samples);
    if (first + size < samples) {
      model_.accumulate(loss, weight * share);
      total += share * loss.item<double>();
    } else {
      reduce(loss, weight * share, [&] { return total + share * loss.item<double>(); });
    }
  }
  return judge();
}

void Steps::reduce(const at::Tensor& loss, double weight, const std::function<double()>& mean_loss) {
  const BackwardResult result =
      model_.backward(loss, weight, [&] { exchange_.emplace(membership_.group(), measure(mean_loss())); });
  replica_.measure_gradient(result.local_square, result.global_square);
  finished_ = clock_.since_start(result.finished);
}

// At the last local gradient.
StepReport Steps::measure(double loss) {
  StepReport measured = clock_.measure(model_.take_waits());
  measured.loss = my_batch() > 0 ? loss : 0.0;
  measured.stop = stop_wanted_;
  measured.signal = signals_ ? StopSignal::received() : 0;
  measured.finite = !replica_.plan_under_way().diagnose || model_.gradient_is_finite();
  measured.newcomer = replica_.rank() == 0 && membership_.newcomer_is_ready();
  return replica_.report(measured);
}

// All workers have the same averages, so all wait for the reports or none does.
StepVerdict Steps::judge() {
  if (options_.on_nonfinite == OnNonFinite::kIgnore || model_.gradient_is_finite()) {
    stage_ = Stage::kTaken;
    return {};
  }
  reports_ = take_reports();
  return replica_.judge(reports_, /*gradient_is_finite=*/false);
}

std::vector<StepReport> Steps::take_reports() {
  std::vector<StepReport> reports = exchange_->wait();
  exchange_.reset();
  return reports;
}

StepOutcome Steps::finish() {
  model_.end_step();
  const std::vector<StepReport> reports = take_reports();
  stage_ = Stage::kNone;  // whatever happens below, this step is not finished twice
  return replica_.complete(reports, finished_, clock_.now());
}

std::vector<EventRecord> Steps::redo() {
  model_.undo();
  stage_ = Stage::kNone;
  return replica_.redo(reports_, clock_.now());
}

StepOutcome Steps::leave_out() {
  model_.undo();
  stage_ = Stage::kNone;
  return replica_.leave_out(reports_, finished_, clock_.now());
}

void Steps::undo() {
  model_.undo();
  if (replica_.phase() != Replica::Phase::kBetween) {
    replica_.abandon();
  }
  stage_ = Stage::kNone;
}

void Steps::leave_group() {
  if (is_computing()) {
    undo();
  }
  stage_ = Stage::kNone;
  exchange_.reset();
}

}  // namespace isochron
