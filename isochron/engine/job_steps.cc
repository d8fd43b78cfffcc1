#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <mpi.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "isochron/comm/mpi_session.h"
#include "isochron/core/error.h"
#include "isochron/core/random/random.h"
#include "isochron/engine/agreement.h"
#include "isochron/engine/job_impl.h"
#include "isochron/engine/usage.h"

namespace isochron {
namespace {

// Empty unless this process was started to join a running job.
std::unique_ptr<Admission> checked_admission(const JobOptions& options) {
  validate(options);
  start_mpi();
  return Admission::take();
}

Controller make_controller(const Group& group, const JobOptions& options) {
  const Roster roster{.workers = agree(group, options), .global_batch = options.global_batch};
  return {roster, {.policy = options.policy, .rate = options.rate}};
}

std::vector<at::Tensor> trained_parameters(const torch::nn::Module& model) {
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : model.parameters()) {
    if (parameter.requires_grad()) {
      trained.push_back(parameter);
    }
  }
  return trained;
}

std::string with_statistics(const torch::nn::Module& model) {
  for (const auto& buffer : model.named_buffers()) {
    if (buffer.key().ends_with("running_mean")) {
      return buffer.key();
    }
  }
  return {};
}

// BatchNorm's statistics are those of one forward pass, so pieces of a batch would each have their own.
void refuse_statistics(const torch::nn::Module& model) {
  if (const std::string statistics = with_statistics(model); !statistics.empty()) {
    throw std::invalid_argument(
        "micro_batch is set for a model with BatchNorm ('" + statistics +
        "'); permitted: 0, with max_batch as the memory ceiling, since statistics need the whole batch at once");
  }
}

// A step may take this many times what the last one took before somebody is named.
constexpr double kPatience = 5.0;
constexpr auto kLeastPatience = std::chrono::milliseconds(1000);

}  // namespace

Job::Impl::Impl(JobOptions options)
    : options_(std::move(options)),
      admission_(checked_admission(options_)),
      patience_ms_(options_.patience().count()),
      membership_(std::make_unique<Membership>(admission_ ? MPI_COMM_SELF : MPI_COMM_WORLD, world_options())),
      controller_(make_controller(membership_->group(), options_)),
      next_id_(workers().size()),
      members_(workers()),
      self_(members_[static_cast<std::size_t>(membership_->rank())]),
      pieces_(any_in_pieces(membership_->group(), options_)),
      micro_batch_(options_.micro_batch) {
  if (options_.handle_signals) {
    signals_.emplace();
  }
  membership_->group()->barrier()->wait();
  began_ = Clock::now();
}

Job::Impl::~Impl() = default;

void Job::Impl::require(bool condition, const char* what) {
  if (!condition) {
    throw std::logic_error(what);
  }
}

double Job::Impl::seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

void Job::Impl::prepare(torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  if (pieces_) {
    refuse_statistics(model);
  }
  model_ = &model;
  optimizer_ = &optimizer;
  rate_.emplace(optimizer);
  buffers_.emplace(model.buffers());
  may_compute_in_pieces_ = with_statistics(model).empty();
  build_on_group(Start::kBroadcast);
}

void Job::Impl::build_on_group(Start start) {
  DataParallelOptions gradients = options_.gradients;
  gradients.measure_moments = options_.rate.rule == RateRule::kAdaScale;
  norms_.emplace(membership_->group());
  parallel_.emplace(trained_parameters(*model_), model_->buffers(), membership_->group(), gradients, start);
}

void Job::Impl::open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) {
  require(model_ != nullptr, "loader() before prepare()");
  if (dataset_ == nullptr) {
    const SamplerOptions order{
        .dataset_size = dataset->size(),
        .global_batch = options_.global_batch,
        .seed = options_.seed,
        .last_batch = options_.last_batch};
    sampler_.emplace(order);
    ledger_.emplace(sampler_->samples_per_epoch());
    dataset_ = dataset;
    if (resumed_ && resumed_->dataset_size != 0) {
      follow(*resumed_);
    }
    source_ = std::make_unique<BatchSource>(
        dataset_,
        order,
        loader,
        data::PrefetchOptions{.threads = options_.prefetch_threads, .capacity = 0},
        options_.device);
  }
  require(dataset == dataset_, "loader() with a second dataset; a job trains on one");
  finish_step();
  loop_epoch_ = sampler_->state().epoch;
}

// The place in the data.
void Job::Impl::follow(const SavedJob& saved) {
  saved.check_dataset(dataset_->size());
  sampler_->restore({options_.seed, saved.sampler.epoch, saved.sampler.position});
  ledger_.emplace(sampler_->samples_per_epoch());
  restore_state(*ledger_, saved.ledger);
}

bool Job::Impl::begin_step(Batch& batch) {
  finish_step();
  if (admission_ && !join()) {
    return false;
  }
  while (!stopping() && sampler_->state().epoch == loop_epoch_) {
    if (newcomer_due_) {
      admit();
    } else if (attempt([&] {
                 take_batch(batch);
                 return true;
               })) {
      return true;
    }
  }
  return false;
}

void Job::Impl::take_batch(Batch& batch) {
  const std::vector<std::int64_t>& split = controller_.decision().batch_sizes;
  parallel_->begin_step();  // may wait for others: before the clock starts
  buffers_->take();
  started_ = Clock::now();
  cpu_started_ = cpu_seconds();
  torch::manual_seed(mix_key({options_.seed, static_cast<std::uint64_t>(step()), static_cast<std::uint64_t>(rank())}));
  rate_->apply(controller_.decision().learning_rate_factor);
  slices_ = sampler_->slices(split);
  step_size_ = sampler_->step_size();
  in_pieces_ = false;
  phase_ = Phase::kComputing;
  batch = source_->take(*sampler_, split, static_cast<std::size_t>(rank()));
  if (options_.sync_batch_norm) {
    norm_scope_.emplace(*norms_, /*counts=*/my_batch() > 0);
  }
  norms_->take_waits();
}

bool Job::Impl::backward(const at::Tensor& loss) {
  require(phase_ == Phase::kComputing, "backward() without a batch of the loader");
  if (micro_batch_ > 0 && my_batch() > micro_batch_) {
    throw std::logic_error(
        "backward(loss) with a batch of " + std::to_string(my_batch()) + " samples and micro_batch " +
        std::to_string(micro_batch_) + ": call backward(batch, loss_of)");
  }
  return attempt([&] {
    reduce(loss, loss_weight(), [&] { return loss.item<double>(); });
    return options_.on_nonfinite == OnNonFinite::kIgnore || parallel_->finite() || handle_numbers();
  });
}

bool Job::Impl::backward(const Batch& batch, const LossOf& loss_of) {
  require(phase_ == Phase::kComputing, "backward() without a batch of the loader");
  in_pieces_ = true;
  return attempt([&] {
    compute_pieces(batch, loss_of);
    return options_.on_nonfinite == OnNonFinite::kIgnore || parallel_->finite() || handle_numbers();
  });
}

void Job::Impl::compute_pieces(const Batch& batch, const LossOf& loss_of) {
  const std::int64_t samples = batch.data.size(0);
  const std::int64_t most = micro_batch_ > 0 ? micro_batch_ : samples;
  double total = 0.0;
  for (std::int64_t first = 0; first < samples; first += most) {
    const std::int64_t size = std::min(most, samples - first);
    const at::Tensor loss = loss_of(batch.data.narrow(0, first, size), batch.target.narrow(0, first, size));
    const double share = static_cast<double>(size) / static_cast<double>(samples);
    if (first + size < samples) {
      parallel_->accumulate(loss, loss_weight() * share);
      total += share * loss.item<double>();
    } else {
      reduce(loss, loss_weight() * share, [&] { return total + share * loss.item<double>(); });
    }
  }
}

void Job::Impl::reduce(const at::Tensor& loss, double weight, const std::function<double()>& mean_loss) {
  norms_->rethrow_failure();
  report_failure_ = nullptr;
  const auto report = [&](const BackwardResult& /*result*/) {
    try {
      exchange_.emplace(membership_->group(), measure(mean_loss()));
    } catch (...) {
      report_failure_ = std::current_exception();  // autograd cannot take it
    }
  };
  const BackwardResult result = parallel_->backward(loss, weight, report);
  norm_scope_.reset();
  norms_->rethrow_failure();
  if (report_failure_) {
    std::rethrow_exception(report_failure_);
  }
  local_square_ = static_cast<double>(my_batch()) / static_cast<double>(step_size_) * result.local_square;
  global_square_ = result.global_square;
  finished_ = result.finished;
  phase_ = Phase::kComputed;
}

// At the last local gradient.
Report Job::Impl::measure(double loss) {
  const SyncBatchNorm::Waits waits = norms_->take_waits();
  const double waited = seconds(waits.time);
  const double computed = std::max(seconds(Clock::now() - started_) - waited, 0.0);
  Report report;
  report.batch = static_cast<double>(my_batch());
  report.start = seconds(started_ - began_);
  report.seconds = computed;
  report.warm = known_sizes_.add(my_batch()) ? 1 : 0;
  report.waited = waited;
  report.meetings = static_cast<double>(waits.count + 1);
  report.cpu = std::min((cpu_seconds() - cpu_started_) / computed, 1.0);
  report.memory = memory_share();
  report.loss = loss;
  report.local_square = local_square_;
  report.global_square = global_square_;
  report.decision = digest(controller_.decision(), sampler_->state());
  const int signal = signals_ ? StopSignal::received() : 0;
  report.stop = signal != 0 ? 1 + signal : stop_wanted_ ? 1 : 0;
  report.finite = !diagnosing_ || parallel_->finite() ? 1 : 0;
  if (rank() == 0) {
    const auto object = [this](const std::string& words) { return objection(words, options_); };
    report.newcomer = membership_->newcomer_is_ready(object, [this](const std::string& words) { warn(words); }) ? 1 : 0;
  }
  return report;
}

void Job::Impl::finish_step() {
  if (phase_ == Phase::kBetween) {
    return;
  }
  if (phase_ == Phase::kComputing) {
    throw std::logic_error("the loader went on to the next step before backward()");
  }
  rate_->restore();
  std::vector<Report> reports;
  try {
    reports = exchange_->wait();
  } catch (const PeerError& error) {
    warn(error.what());
    recover(suspects_of(error));
    return;
  }
  exchange_.reset();
  complete_step(reports);
}

void Job::Impl::complete_step(const std::vector<Report>& reports) {
  phase_ = Phase::kBetween;  // whatever happens below, this step is not finished twice
  check_agreement(reports, step());
  record_ =
      make_record(reports, workers(), controller_.decision(), sampler_->state(), seconds(finished_ - began_), now());
  patience_ms_ = std::max<std::int64_t>(kLeastPatience.count(), std::llround(record_.seconds * kPatience * 1000.0));
  note_samples();
  note_stop(reports);
  note_newcomer(reports);
  diagnosing_ = false;
  if (moments_known_) {
    controller_.observe_gradients(make_moments(reports));
  }
  moments_known_ = step_size_ == options_.global_batch;  // a short step's gradient varies more
  controller_.observe(make_telemetry(reports, workers(), step()));
  raise_ceilings();
  if (options_.on_step) {
    options_.on_step(record_);
  }
}

void Job::Impl::note_samples() {
  if (sampler_->state().position == 0) {
    ledger_.emplace(sampler_->samples_per_epoch());
  }
  for (std::size_t k = 0; k < slices_.size(); ++k) {
    ledger_->stage({.positions = slices_[k], .worker = workers()[k].id});
  }
  ledger_->commit();
  sampler_->advance();
  ISO_CHECK(sampler_->state().position != 0 || ledger_->complete(), "an epoch used some sample twice or not at all");
}

void Job::Impl::note_stop(const std::vector<Report>& reports) {
  const auto stop = static_cast<int>(std::ranges::max(reports, {}, &Report::stop).stop);
  stopping_ = stopping_ || stop > 0;
  stop_signal_ = std::max(stop_signal_, stop - 1);
}

void Job::Impl::note_newcomer(const std::vector<Report>& reports) {
  newcomer_due_ = reports.front().newcomer > 0;
  // One after the other; further requests wait.
  if (rank() == 0 && options_.join_requests && !stopping_ && !membership_->expects_newcomer()) {
    if (const auto request = options_.join_requests()) {
      membership_->invite(request->words, request->host);
    }
  }
}

void Job::Impl::raise_ceilings() {
  if (ceilings_.raise(step(), options_.global_batch)) {
    fit_to_members();
  }
}

std::vector<double> Job::Impl::sum(const std::vector<double>& values) {
  std::vector<double> sums;
  if (phase_ != Phase::kBetween) {  // nothing can be done about a failure here
    return isochron::sum(membership_->group(), values);
  }
  if (!try_together([&] { sums = isochron::sum(membership_->group(), values); })) {
    throw Interrupted("the workers changed while they added up values; do it again");
  }
  return sums;
}

void Job::Impl::save(const std::filesystem::path& path) {
  require(model_ != nullptr, "save() before prepare()");
  finish_step();
  std::string failure;
  const auto write = [&] {
    failure.clear();
    if (rank() == 0) {
      try {
        write_checkpoint(path, pack(saved(), *model_, *optimizer_));
      } catch (const Error& error) {
        failure = error.what();
      }
    }
    failure = broadcast(membership_->group(), failure);
  };
  while (!try_together(write)) {
  }
  if (!failure.empty()) {
    throw Error(failure);
  }
  last_saved_ = path;
}

void Job::Impl::restore(const std::filesystem::path& path) {
  require(model_ != nullptr, "restore() before prepare()");
  require(dataset_ == nullptr, "restore() after loader()");
  resumed_.emplace(unpack(read_everywhere(path, membership_->group()), path.string(), *model_, *optimizer_));
  resumed_->check_options(options_);
  resumed_->give_ids(members_, next_id_);
  self_ = members_[static_cast<std::size_t>(rank())];
  restore_policy(*resumed_);
  fit_to_members();
  rate_.emplace(*optimizer_);
  last_saved_ = path;
}

SavedJob Job::Impl::saved() {
  return {
      .global_batch = options_.global_batch,
      .seed = std::to_string(options_.seed),
      .last_batch = options_.last_batch == LastBatch::kKeep ? "keep" : "drop",
      .policy = options_.policy,
      .roster = workers(),
      .next_id = next_id_,
      .dataset_size = dataset_ ? dataset_->size() : 0,
      .sampler = sampler_ ? sampler_->state() : SamplerState{},
      .ledger = ledger_ ? save_state(*ledger_) : State{},
      .controller = controller_.state(),
      .ceilings = save_state(ceilings_),
      .record = to_json(record_)};
}

void Job::Impl::close() {
  if (phase_ == Phase::kComputed) {
    finish_step();
  }
  norm_scope_.reset();
  source_.reset();
  parallel_.reset();
  norms_.reset();
  model_ = nullptr;
  optimizer_ = nullptr;
}

const Sampler& Job::Impl::sampler() const {
  require(sampler_.has_value(), "no loader() yet");
  return *sampler_;
}

const Ledger& Job::Impl::ledger() const {
  require(ledger_.has_value(), "no loader() yet");
  return *ledger_;
}

double Job::Impl::loss_weight() const {
  return options_.weighting == Weighting::kMean ? 1.0 : isochron::loss_weight(my_batch(), step_size_, size());
}

}  // namespace isochron
