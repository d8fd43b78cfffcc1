#include "isochron/engine/job.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>

#include <mpi.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "isochron/comm/mpi_backend.h"
#include "isochron/comm/mpi_session.h"
#include "isochron/core/error.h"
#include "isochron/core/random/random.h"
#include "isochron/engine/agreement.h"
#include "isochron/engine/batch_source.h"
#include "isochron/engine/exchange.h"
#include "isochron/engine/job_state.h"
#include "isochron/engine/learning_rate.h"
#include "isochron/engine/stop_signal.h"
#include "isochron/engine/sync_batch_norm.h"
#include "isochron/engine/usage.h"

namespace isochron {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

Group join_world(const JobOptions& options) {
  options.validate();
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    static const MpiSession session;  // ends with the process
  }
  return make_group(make_mpi_backend(MPI_COMM_WORLD, {.timeout = options.timeout}));
}

Controller make_controller(const Group& group, const JobOptions& options) {
  const Roster roster{.workers = agree(group, options), .global_batch = options.global_batch};
  return {roster, {.policy = options.policy, .rate = options.rate}};
}

// BatchNorm's statistics are those of one forward pass, so pieces of a batch would each have their own.
void refuse_statistics(const torch::nn::Module& model) {
  for (const auto& buffer : model.named_buffers()) {
    if (buffer.key().ends_with("running_mean")) {
      throw std::invalid_argument(
          "micro_batch is set for a model with BatchNorm ('" + buffer.key() +
          "'); permitted: 0, with max_batch as the memory ceiling, since statistics need the whole batch at once");
    }
  }
}

}  // namespace

class Job::Impl {
 public:
  explicit Impl(JobOptions options)
      : options_(std::move(options)),
        group_(join_world(options_)),
        controller_(make_controller(group_, options_)),
        pieces_(any_in_pieces(group_, options_)),
        norms_(group_) {
    if (options_.handle_signals) {
      signals_.emplace();
    }
    group_->barrier()->wait();
    began_ = Clock::now();
  }

  void prepare(torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
    if (pieces_) {
      refuse_statistics(model);
    }
    model_ = &model;
    optimizer_ = &optimizer;
    rate_.emplace(optimizer);
    std::vector<at::Tensor> trained;
    for (const at::Tensor& parameter : model.parameters()) {
      if (parameter.requires_grad()) {
        trained.push_back(parameter);
      }
    }
    DataParallelOptions gradients = options_.gradients;
    gradients.measure_moments = options_.rate.rule == RateRule::kAdaScale;
    parallel_.emplace(std::move(trained), model.buffers(), group_, gradients);
  }

  void open(std::shared_ptr<const data::Dataset> dataset, const LoaderOptions& loader) {
    require(parallel_.has_value(), "loader() before prepare()");
    if (dataset_ == nullptr) {
      const SamplerOptions order{
          .dataset_size = dataset->size(),
          .global_batch = options_.global_batch,
          .seed = options_.seed,
          .last_batch = options_.last_batch};
      sampler_.emplace(order);
      ledger_.emplace(sampler_->samples_per_epoch());
      if (resumed_ && resumed_->dataset_size != 0) {
        resumed_->check_dataset(dataset->size());
        sampler_->restore({options_.seed, resumed_->sampler.epoch, resumed_->sampler.position});
        restore_state(*ledger_, resumed_->ledger);
      }
      source_ = std::make_unique<BatchSource>(dataset, order, loader, options_.prefetch, options_.device);
      dataset_ = std::move(dataset);
    }
    require(dataset == nullptr || dataset == dataset_, "loader() with a second dataset; a job trains on one");
    finish_step();
    loop_epoch_ = sampler_->state().epoch;
  }

  // False if the loop is over.
  bool begin_step(Batch& batch) {
    finish_step();
    if (stopping() || sampler_->state().epoch != loop_epoch_) {
      return false;
    }
    const std::vector<std::int64_t>& split = controller_.decision().batch_sizes;
    parallel_->begin_step();  // may wait for others: before the clock starts
    started_ = Clock::now();
    cpu_started_ = cpu_seconds();
    torch::manual_seed(
        mix_key({options_.seed, static_cast<std::uint64_t>(step()), static_cast<std::uint64_t>(rank())}));
    rate_->apply(controller_.decision().learning_rate_factor);
    slices_ = sampler_->slices(split);
    step_size_ = sampler_->step_size();
    batch = source_->take(*sampler_, split, static_cast<std::size_t>(rank()));
    if (options_.sync_batch_norm) {
      norm_scope_.emplace(norms_, /*counts=*/my_batch() > 0);
    }
    norms_.take_waited();
    phase_ = Phase::kComputing;
    return true;
  }

  void backward(const at::Tensor& loss) {
    require(phase_ == Phase::kComputing, "backward() without a batch of the loader");
    if (options_.micro_batch > 0 && my_batch() > options_.micro_batch) {
      throw std::logic_error(
          "backward(loss) with a batch of " + std::to_string(my_batch()) + " samples and micro_batch " +
          std::to_string(options_.micro_batch) + ": call backward(batch, loss_of)");
    }
    reduce(loss, loss_weight(), [&] { return loss.item<double>(); });
  }

  void backward(const Batch& batch, const LossOf& loss_of) {
    require(phase_ == Phase::kComputing, "backward() without a batch of the loader");
    const std::int64_t samples = batch.data.size(0);
    const std::int64_t most = options_.micro_batch > 0 ? options_.micro_batch : samples;
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

  void finish_step() {
    if (phase_ == Phase::kBetween) {
      return;
    }
    if (phase_ == Phase::kComputing) {
      throw std::logic_error("the loader went on to the next step before backward()");
    }
    phase_ = Phase::kBetween;  // whatever happens below, this step is not finished twice
    rate_->restore();
    const std::vector<Report> reports = exchange_->wait();
    exchange_.reset();
    check_agreement(reports, step());
    record_ = make_record(reports, controller_.decision(), seconds(finished_ - began_), seconds(Clock::now() - began_));
    note_samples();
    note_stop(reports);
    if (moments_known_) {
      controller_.observe_gradients(make_moments(reports));
    }
    moments_known_ = step_size_ == options_.global_batch;  // a short step's gradient varies more
    controller_.observe(make_telemetry(reports, step()));
    if (options_.on_step) {
      options_.on_step(record_);
    }
  }

  void save(const std::filesystem::path& path) {
    require(model_ != nullptr, "save() before prepare()");
    finish_step();
    std::string failure;
    if (rank() == 0) {
      try {
        save_job(path, saved(), *model_, *optimizer_);
      } catch (const Error& error) {
        failure = error.what();
      }
    }
    failure = broadcast(group_, failure);
    if (!failure.empty()) {
      throw Error(failure);
    }
  }

  void restore(const std::filesystem::path& path) {
    require(model_ != nullptr, "restore() before prepare()");
    require(dataset_ == nullptr, "restore() after loader()");
    resumed_.emplace(load_job(path, group_, *model_, *optimizer_));
    resumed_->check_options(options_);
    resumed_->restore(controller_, options_);
    rate_.emplace(*optimizer_);
  }

  void close() {
    if (phase_ == Phase::kComputed) {
      finish_step();
    }
    norm_scope_.reset();
    source_.reset();
    parallel_.reset();
    model_ = nullptr;
    optimizer_ = nullptr;
  }

  int rank() const { return group_->getRank(); }
  int size() const { return group_->getSize(); }
  const Group& group() const { return group_; }
  Controller& controller() { return controller_; }
  std::int64_t step() const { return controller_.decision().step; }
  std::int64_t epoch() const { return sampler_ ? sampler_->state().epoch : resumed_ ? resumed_->sampler.epoch : 0; }
  const Sampler& sampler() const {
    require(sampler_.has_value(), "no loader() yet");
    return *sampler_;
  }
  const Ledger& ledger() const {
    require(ledger_.has_value(), "no loader() yet");
    return *ledger_;
  }
  const StepRecord& last_step() const { return record_; }
  double loss_weight() const {
    return options_.weighting == Weighting::kMean ? 1.0 : isochron::loss_weight(my_batch(), step_size_, size());
  }
  void stop() { stop_wanted_ = true; }
  bool stopping() const { return stopping_; }
  int stop_signal() const { return stop_signal_; }

 private:
  enum class Phase : std::uint8_t {
    kBetween,    // two steps
    kComputing,  // a batch is out
    kComputed,   // its gradients are there
  };

  static void require(bool condition, const char* what) {
    if (!condition) {
      throw std::logic_error(what);
    }
  }

  std::int64_t my_batch() const { return slices_[static_cast<std::size_t>(rank())].size(); }

  void reduce(const at::Tensor& loss, double weight, const std::function<double()>& mean_loss) {
    const auto report = [&](const BackwardResult& /*result*/) {
      try {
        exchange_.emplace(group_, measure(mean_loss()));
      } catch (...) {
        report_failure_ = std::current_exception();  // autograd cannot take it
      }
    };
    const BackwardResult result = parallel_->backward(loss, weight, report);
    norm_scope_.reset();
    if (report_failure_) {
      std::rethrow_exception(report_failure_);
    }
    local_square_ = static_cast<double>(my_batch()) / static_cast<double>(step_size_) * result.local_square;
    global_square_ = result.global_square;
    finished_ = result.finished;
    phase_ = Phase::kComputed;
  }

  // At the last local gradient.
  Report measure(double loss) {
    const double waited = seconds(norms_.take_waited());
    const double computed = std::max(seconds(Clock::now() - started_) - waited, 0.0);
    Report report;
    report.batch = static_cast<double>(my_batch());
    report.start = seconds(started_ - began_);
    report.seconds = computed;
    report.waited = waited;
    report.cpu = std::min((cpu_seconds() - cpu_started_) / computed, 1.0);
    report.memory = memory_share();
    report.loss = loss;
    report.local_square = local_square_;
    report.global_square = global_square_;
    report.decision = digest(controller_.decision(), sampler_->state());
    const int signal = signals_ ? StopSignal::received() : 0;
    report.stop = signal != 0 ? 1 + signal : stop_wanted_ ? 1 : 0;
    return report;
  }

  void note_samples() {
    if (sampler_->state().position == 0) {
      ledger_.emplace(sampler_->samples_per_epoch());
    }
    for (std::size_t k = 0; k < slices_.size(); ++k) {
      ledger_->stage({.positions = slices_[k], .worker = k});
    }
    ledger_->commit();
    sampler_->advance();
    ISO_CHECK(sampler_->state().position != 0 || ledger_->complete(), "an epoch used some sample twice or not at all");
  }

  void note_stop(const std::vector<Report>& reports) {
    const auto stop = static_cast<int>(std::ranges::max(reports, {}, &Report::stop).stop);
    stopping_ = stopping_ || stop > 0;
    stop_signal_ = std::max(stop_signal_, stop - 1);
  }

  SavedJob saved() {
    return {
        .global_batch = options_.global_batch,
        .seed = std::to_string(options_.seed),
        .last_batch = options_.last_batch == LastBatch::kKeep ? "keep" : "drop",
        .policy = options_.policy,
        .workers = size(),
        .dataset_size = dataset_ ? dataset_->size() : 0,
        .sampler = sampler_ ? sampler_->state() : SamplerState{},
        .ledger = ledger_ ? save_state(*ledger_) : State{},
        .controller = controller_.state()};
  }

  const JobOptions options_;
  const Group group_;
  Controller controller_;
  const bool pieces_;  // some worker computes its batch in pieces
  SyncBatchNorm norms_;
  std::optional<StopSignal> signals_;
  Clock::time_point began_;

  torch::nn::Module* model_ = nullptr;
  torch::optim::Optimizer* optimizer_ = nullptr;
  std::optional<LearningRate> rate_;
  std::optional<DataParallel> parallel_;

  std::optional<SavedJob> resumed_;  // until the dataset is known
  std::shared_ptr<const data::Dataset> dataset_;
  std::optional<Sampler> sampler_;
  std::optional<Ledger> ledger_;
  std::unique_ptr<BatchSource> source_;
  std::int64_t loop_epoch_ = 0;

  // The step under way.
  Phase phase_ = Phase::kBetween;
  std::vector<Interval> slices_;
  std::int64_t step_size_ = 0;
  Clock::time_point started_;
  Clock::time_point finished_;
  double cpu_started_ = 0.0;
  std::optional<SyncBatchNorm::Scope> norm_scope_;
  std::optional<ReportExchange> exchange_;
  std::exception_ptr report_failure_;

  // Of the last gradient, for AdaScale.
  double local_square_ = 0.0;
  double global_square_ = 0.0;
  bool moments_known_ = false;

  StepRecord record_;
  bool stop_wanted_ = false;
  bool stopping_ = false;
  int stop_signal_ = 0;
};

Job::Job(const JobOptions& options) : impl_(std::make_unique<Impl>(options)) {
}
Job::~Job() = default;

int Job::rank() const {
  return impl_->rank();
}
int Job::size() const {
  return impl_->size();
}
void Job::prepare(torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  impl_->prepare(model, optimizer);
}
Epochs Job::epochs(std::int64_t count) {
  return {*this, count};
}
Loader Job::loader(std::shared_ptr<const data::Dataset> dataset, const LoaderOptions& options) {
  impl_->open(std::move(dataset), options);
  return Loader(*this);
}
void Job::backward(const at::Tensor& loss) {
  impl_->backward(loss);
}
void Job::backward(const Batch& batch, const LossOf& loss_of) {
  impl_->backward(batch, loss_of);
}
std::int64_t Job::step() const {
  return impl_->step();
}
std::int64_t Job::epoch() const {
  return impl_->epoch();
}
std::int64_t Job::steps_per_epoch() const {
  return impl_->sampler().steps_per_epoch();
}
const Controller& Job::controller() const {
  return impl_->controller();
}
Controller& Job::controller() {
  return impl_->controller();
}
double Job::loss_weight() const {
  return impl_->loss_weight();
}
const StepRecord& Job::last_step() const {
  return impl_->last_step();
}
const Ledger& Job::ledger() const {
  return impl_->ledger();
}
std::vector<double> Job::sum(const std::vector<double>& values) {
  return isochron::sum(impl_->group(), values);
}
void Job::barrier() {
  impl_->group()->barrier()->wait();
}
void Job::finish_step() {
  impl_->finish_step();
}
void Job::stop() {
  impl_->stop();
}
bool Job::stopping() const {
  return impl_->stopping();
}
int Job::stop_signal() const {
  return impl_->stop_signal();
}
void Job::save(const std::filesystem::path& path) {
  impl_->save(path);
}
void Job::restore(const std::filesystem::path& path) {
  impl_->restore(path);
}
void Job::close() {
  impl_->close();
}

void Loader::Iterator::begin_step() {
  if (!job_->impl_->begin_step(batch_)) {
    job_ = nullptr;
    batch_ = {};
  }
}
Loader::Iterator& Loader::Iterator::operator++() {
  begin_step();
  return *this;
}

std::int64_t Epochs::Iterator::operator*() const {
  return job_->epoch();
}
bool Epochs::Iterator::operator==(std::default_sentinel_t) const {
  return job_->stopping() || job_->epoch() >= count_;
}

}  // namespace isochron
