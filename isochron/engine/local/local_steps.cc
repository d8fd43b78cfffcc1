#include "isochron/engine/local/local_steps.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/utils.h>

#include "isochron/comm/ulfm.h"
#include "isochron/core/error.h"
#include "isochron/core/peer_error.h"
#include "isochron/core/random/random.h"
#include "isochron/engine/listeners.h"

namespace isochron {
namespace {

std::vector<std::int64_t> positions_of(const Interval& part) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(part.size()));
  std::iota(positions.begin(), positions.end(), part.first);
  return positions;
}

void require_only(const BackwardPass& pass) {
  if (!pass.is_last()) {
    throw std::invalid_argument(
        "backward() is told its optimizers with sync 'local'; permitted: one backward(loss) for every batch");
  }
}

}  // namespace

LocalSteps::LocalSteps(
    const JobOptions& options,
    Replica& replica,
    JobDatasets& datasets,
    Membership& membership,
    LocalModel& model,
    StepClock& clock)
    : Steps(options, replica, datasets, membership, model, clock), local_(model) {
}

std::int64_t LocalSteps::steps_done() const {
  const std::int64_t batch = options_.global_batch;
  return replica_.epoch() * replica_.sampler().steps_per_epoch() + (replica_.position() + batch - 1) / batch;
}

bool LocalSteps::loop_goes_on() const {
  return round_ || (Steps::loop_goes_on() && (end_ < 0 || steps_done() < end_));
}

std::int64_t LocalSteps::round_steps() const {
  return round_ ? replica_.plan_under_way().local_steps : replica_.round_steps();
}

std::optional<Batch> LocalSteps::begin() {
  if (!round_) {
    begin_round();
  } else if (is_revoked(membership_.comm())) {  // who has given up the round waits for the others
    throw PeerLostError("another worker has given up round " + std::to_string(replica_.step()), {});
  }
  if (round_->parts.empty()) {
    stage_ = Stage::kTaken;  // this worker has no samples of the round, and waits for the others
    return std::nullopt;
  }
  stage_ = Stage::kComputing;
  by_function_ = false;
  by_value_ = false;
  const StepPlan& plan = replica_.plan_under_way();
  torch::manual_seed(mix_key(
      {options_.seed,
       static_cast<std::uint64_t>(plan.step),
       static_cast<std::uint64_t>(replica_.rank()),
       static_cast<std::uint64_t>(round_->done)}));
  Batch batch = take_part();
  model_.begin_forward(plan.learning_rate_factor, /*counts=*/true, /*all_count=*/true);
  return batch;
}

void LocalSteps::begin_round() {
  local_.begin_round();
  clock_.begin_step();
  const std::int64_t left = end_ < 0 ? 0 : (end_ - steps_done()) * options_.global_batch;
  const StepPlan& plan = replica_.plan(/*from_stream=*/0, left);
  round_ = Round{.parts = plan.parts()};
}

Batch LocalSteps::take_part() {
  const StepPlan& plan = replica_.plan_under_way();
  const bool last = round_->done + 1 == round_->parts.size();
  Interval coming = last ? round_->parts.front() : round_->parts[round_->done + 1];
  if (last) {  // of the next round, if it is like this one
    coming.first += plan.step_size;
    coming.last += plan.step_size;
    if (coming.last > replica_.sampler().samples_per_epoch()) {
      coming.last = coming.first;
    }
  }
  return datasets_.present().source->take(
      {.epoch = plan.epoch, .positions = positions_of(round_->parts[round_->done])},
      {.epoch = plan.epoch, .positions = positions_of(coming)});
}

StepVerdict LocalSteps::backward(const at::Tensor& loss, const BackwardPass& pass) {
  require_batch();
  require_only(pass);
  by_value_ = true;
  require_whole(part_size());
  LocalModel::add_gradient(loss, 1.0);
  return take(loss.detach());
}

StepVerdict LocalSteps::backward(const Batch& batch, const Job::LossOf& loss_of, const BackwardPass& pass) {
  require_batch();
  require_only(pass);
  by_function_ = true;
  const std::int64_t samples = batch.data.size(0);
  const std::int64_t most = replica_.chunk_size() > 0 ? replica_.chunk_size() : samples;
  at::Tensor mean = at::zeros({}, batch.data.options().dtype(at::kDouble));
  for (std::int64_t first = 0; first < samples; first += most) {
    const std::int64_t size = std::min(most, samples - first);
    const double share = static_cast<double>(size) / static_cast<double>(samples);
    const at::Tensor loss = loss_of(batch.data.narrow(0, first, size), batch.target.narrow(0, first, size));
    LocalModel::add_gradient(loss, share);
    mean += share * loss.detach();
  }
  return take(mean);
}

StepVerdict LocalSteps::take(const at::Tensor& mean_loss) {
  const at::Tensor sum = mean_loss.to(at::kDouble) * part_size();
  round_->loss = round_->loss.defined() ? round_->loss + sum : sum;
  stage_ = Stage::kTaken;
  return {};
}

std::optional<StepOutcome> LocalSteps::finish() {
  model_.end_step();
  if (!round_->parts.empty()) {
    ++round_->done;
  }
  if (round_->done < round_->parts.size()) {
    stage_ = Stage::kNone;
    return std::nullopt;
  }
  StepOutcome outcome = end_round();
  round_.reset();
  stage_ = Stage::kNone;
  return outcome;
}

StepReport LocalSteps::measure_round() {
  const bool finite = local_.finite();  // waits for a GPU
  StepReport measured = clock_.measure({});
  const auto samples = static_cast<double>(replica_.plan_under_way().mine.size());
  measured.items = samples;
  measured.loss = round_->loss.defined() ? round_->loss.item<double>() / samples : 0.0;
  measured.finite = finite;
  measured.exchange = exchange_seconds_;
  say_rest(measured);
  return measured;
}

StepOutcome LocalSteps::end_round() {
  const StepReport mine = replica_.report(measure_round());
  const std::vector<StepReport> reports = ReportExchange(membership_.group(), mine).wait();
  const bool all_finite = std::ranges::all_of(reports, &StepReport::finite);
  if (options_.on_nonfinite != OnNonFinite::kIgnore && !all_finite) {
    return refuse(reports);
  }
  const double began = clock_.now();
  local_.average(membership_.group(), replica_.average_weight(reports), mine.items);
  const double finished = clock_.now();
  exchange_seconds_ = finished - began;
  return replica_.complete(reports, finished, clock_.now());
}

StepOutcome LocalSteps::refuse(const std::vector<StepReport>& reports) {
  const StepVerdict verdict = replica_.judge(reports, /*gradient_is_finite=*/false);
  if (verdict.action == StepAction::kStop) {
    undo();
    throw NonFiniteError(verdict.message + "; model and optimizer are as before the round");
  }
  warn(options_, verdict.message + "; the round is left out");
  model_.undo();
  return replica_.leave_out(reports, clock_.now(), clock_.now());
}

void LocalSteps::close() {
  if (round_) {
    undo();
  }
  Steps::close();
}

void LocalSteps::undo() {
  Steps::undo();
  round_.reset();
}

// The others may be computing for long before they would notice.
void LocalSteps::leave_group() {
  if (round_) {
    revoke(membership_.comm());
    undo();
  }
  Steps::leave_group();
}

}  // namespace isochron
