#include "isochron/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <torch/cuda.h>
#include <torch/optim/optimizer.h>
#include <torch/utils.h>

#include "isochron/core/error.h"
#include "isochron/data/catalog.h"
#include "isochron/data/first_samples.h"
#include "isochron/engine/autocast.h"
#include "isochron/engine/batch_source.h"
#include "isochron/engine/checkpoint.h"
#include "isochron/io/step_file.h"
#include "isochron/io/worker_phase.h"
#include "isochron/io/worker_variables.h"
#include "isochron/model/model.h"
#include "isochron/train/device.h"
#include "isochron/train/optimizer.h"

namespace isochron::train {
namespace {

using data::Split;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMostAtOnce = 256;  // samples that a worker evaluates together

bool is_images(const data::Dataset& dataset) {
  return dataset.shape().sizes.size() == 3;
}

std::shared_ptr<const data::Dataset> open(const Options& options, Split split) {
  try {
    const std::shared_ptr<const data::Dataset> dataset = data::open_dataset(
        options.dataset,
        {.folder = options.data,
         .split = split,
         .context = options.context,
         .documents = options.lengths == SampleLengths::kDocuments});
    const std::int64_t most = split == Split::kTrain ? options.train_samples : options.test_samples;
    return most == 0 ? dataset : data::first_samples(dataset, std::min(most, dataset->size()));
  } catch (const Error& error) {
    throw std::invalid_argument(
        "dataset is '" + options.dataset + "'; permitted: one whose files are there (" + error.what() +
        "; 'make data' brings them)");
  }
}

LoaderOptions loading(const Options& options, const data::Dataset& dataset, Split split) {
  LoaderOptions loader{.collation = options.collate, .empty_rounds = true};
  loader.cost = options.cost == "count" ? std::nullopt : std::optional(parse_length_cost("cost", options.cost));
  if (is_images(dataset)) {
    loader.augment = data::customary_augmentation(options.dataset, split);
  }
  return loader;
}

model::InputShape input_shape(const data::Dataset& dataset) {
  const auto& sizes = dataset.shape().sizes;
  if (is_images(dataset)) {
    return {.channels = sizes[0], .height = sizes[1], .width = sizes[2], .classes = dataset.classes()};
  }
  return {.context = sizes[0] - 1, .classes = dataset.classes()};
}

// The same for the same seed, whatever was drawn before.
std::shared_ptr<model::Model> seeded_model(const Options& options, const data::Dataset& dataset, c10::Device device) {
  torch::manual_seed(options.job.seed);
  std::shared_ptr<model::Model> model = model::make_model(options.model, input_shape(dataset));
  model->to(device);
  return model;
}

// Takes scores [b, classes], or [b, context, classes] for sequences.
at::Tensor loss_of(const at::Tensor& scores, const at::Tensor& target, at::Reduction::Reduction reduction) {
  return at::cross_entropy_loss(scores.flatten(0, -2), target.flatten(), {}, reduction);
}

std::int64_t count_steps(const Options& options, std::int64_t steps_per_epoch) {
  const std::int64_t most = options.steps > 0 ? options.steps : std::numeric_limits<std::int64_t>::max();
  return options.epochs > most / steps_per_epoch ? most : options.epochs * steps_per_epoch;
}

// As large as memory permits.
template <class Action>
void for_each_micro_batch(const Batch& batch, std::int64_t micro_batch, const Action& action) {
  const std::int64_t size = batch.data.size(0);
  const std::int64_t most = micro_batch > 0 ? micro_batch : size;
  for (std::int64_t from = 0; from < size; from += most) {
    const std::int64_t to = std::min(from + most, size);
    action(batch.data.slice(0, from, to), batch.target.slice(0, from, to));
  }
}

template <class Action>
double seconds_of(c10::Device device, const Action& action) {
  const auto start = Clock::now();
  action();
  if (device.is_cuda()) {
    torch::cuda::synchronize(device.index());
  }
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The median of what `measure` gives; the first time warms up and does not count.
template <class Measure>
double median_of(const Measure& measure) {
  constexpr int kTimes = 9;
  (void)measure();
  std::vector<double> seconds(kTimes);
  std::ranges::generate(seconds, measure);
  std::ranges::sort(seconds);
  return seconds[kTimes / 2];
}

// Checked, and with everything in its place before the first word to other workers.
Options ready(Options options) {
  options.validate();
  options.job.device = choose_device(options.device);
  options.job.rescue_folder = options.checkpoints;
  if (options.memory_limit > 0) {
    // An allocation above it fails, which the job can deal with; a control group's limit would kill the process.
    const auto bytes = static_cast<rlim_t>(options.memory_limit);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
    setrlimit(RLIMIT_DATA, &limit);
  }
  if (options.threads > 0) {
    at::set_num_threads(static_cast<int>(options.threads));
  }
  return options;
}

}  // namespace

Trainer::Trainer(const Options& options, Warn warn)
    : options_(ready(options)),
      warn_(warn ? std::move(warn) : [](const std::string&) {}),
      train_(open(options_, Split::kTrain)),
      test_(open(options_, Split::kTest)),
      model_(seeded_model(options_, *train_, device())),
      optimizer_(make_optimizer(options_, model_->parameters())),
      steps_per_epoch_(first_epoch().steps_per_epoch()),
      total_steps_(count_steps(options_, steps_per_epoch_)),
      decay_(options_.decay(total_steps_)),
      job_(options_.job) {
  job_.prepare(*model_, *optimizer_);
  make_folder();
  resume();
}

bool Trainer::step() {
  if (asynchronous()) {
    return iterate();
  }
  while (begin_step()) {
    if (!at_->data.defined()) {                    // a round of which this worker had no samples
      const StepRecord& round = job_.last_step();  // the same for all: this worker may have joined in it
      save_if_due(round.epoch * steps_per_epoch_ + round.position / options_.job.global_batch);
      return true;
    }
    const std::int64_t wanted = job_.step();
    const std::int64_t before = steps_done() - job_.local_step();
    const bool happened = job_.backward(*at_, [this](const at::Tensor& data, const at::Tensor& target) {
      return loss_of(model_->forward(data), target, at::Reduction::Mean);
    });
    if (happened) {
      optimizer_->step();
    }
    optimizer_->zero_grad();
    job_.finish_step();
    if (job_.step() > wanted) {
      save_if_due(before);
      return true;
    }
  }
  return false;
}

void Trainer::save() {
  if (options_.checkpoints.empty()) {
    return;
  }
  job_.save(checkpoint_path(options_.checkpoints, steps_done()));
  if (job_.is_first()) {
    remove_old_checkpoints(options_.checkpoints, options_.keep);
  }
}

Evaluation Trainer::evaluate() {
  while (true) {
    try {
      return evaluate_once();
    } catch (const Interrupted&) {  // somebody's part is lost
      model_->train();
    }
  }
}

double Trainer::solo_seconds(std::int64_t batch) {
  prepare_solo(batch);
  const double seconds = seconds_of(device(), [this] { solo_backward(); });
  solo_model_->zero_grad();
  return seconds;
}

SoloCosts Trainer::solo_costs() {
  SoloCosts costs{.prepare_seconds = prepare_seconds(), .update_seconds = update_seconds()};
  for (const at::Tensor& parameter : solo_model_->parameters()) {
    costs.parameter_bytes += parameter.requires_grad() ? static_cast<double>(parameter.nbytes()) : 0.0;
  }
  return costs;
}

void Trainer::publish_step(std::int64_t step) {
  const char* const path = std::getenv(io::kStepFileVariable);
  if (path == nullptr || !job_.is_first()) {
    return;
  }
  if (!step_file_) {  // at the start, or because the first worker is gone
    step_file_.emplace(io::StepFile::open(path));
  }
  step_file_->publish(step);
}

std::int64_t Trainer::steps_done() const {
  if (options_.job.sync != Sync::kLocal) {
    return job_.step();
  }
  const std::int64_t batch = options_.job.global_batch;
  return job_.epoch() * steps_per_epoch_ + (job_.position() + batch - 1) / batch + job_.local_step();
}
Evaluation Trainer::evaluate_once() {
  const torch::NoGradGuard no_gradients;
  const auto me = static_cast<std::size_t>(job_.rank());
  const std::vector<std::int64_t> split = evaluation_split();
  const std::int64_t together = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  const SamplerOptions order{.dataset_size = test_->size(), .global_batch = together};
  BatchSource source(
      test_,
      order,
      loading(options_, *test_, Split::kTest),
      data::PrefetchOptions{.threads = options_.job.prefetch_threads, .capacity = 0},
      device());
  std::vector<double> sums(3);
  model_->eval();
  Sampler sampler(order);
  for (std::int64_t left = sampler.steps_per_epoch(); left > 0; --left) {
    if (sampler.slices(split)[me].size() > 0) {
      add_scores(source.take(sampler, split, me), sums);
    }
    sampler.advance();
  }
  model_->train();
  sums = job_.sum(sums);
  return {.loss = sums[0] / sums[2], .accuracy = sums[1] / sums[2]};
}

SamplerOptions Trainer::order(std::int64_t global_batch) const {
  return {
      .dataset_size = train_->size(),
      .global_batch = global_batch,
      .seed = options_.job.seed,
      .last_batch = options_.job.last_batch};
}

Sampler Trainer::first_epoch() const {
  const std::int64_t batch = options_.job.global_batch;
  if (batch > train_->size()) {
    throw std::invalid_argument(
        "--global-batch is " + std::to_string(batch) + "; permitted: up to " + std::to_string(train_->size()) +
        ", the samples that there are");
  }
  return Sampler(order(batch));
}

// One iteration, from batch to batch.
bool Trainer::iterate() {
  if (at_ == std::default_sentinel) {
    if (job_.step() >= total_steps_ || job_.stopping()) {
      return false;
    }
    job_.barrier_at(next_barrier());
    const Split split = options_.augment ? Split::kTrain : Split::kTest;
    at_ = job_.loader(train_, loading(options_, *train_, split)).begin();
  }
  if (at_ != std::default_sentinel) {
    publish_step(job_.step());
    note_membership();
    set_learning_rate(*optimizer_, learning_rate());
    job_.backward(*at_, [this](const at::Tensor& data, const at::Tensor& target) {
      return loss_of(model_->forward(data), target, at::Reduction::Mean);
    });
    ++at_;
  }
  if (at_ == std::default_sentinel) {
    save_if_due(job_.step() - 1);
  }
  return true;
}

// Beside the ends of epochs.
std::int64_t Trainer::next_barrier() const {
  std::int64_t next = total_steps_;
  if (barrier_at_ > job_.step()) {
    next = std::min(next, barrier_at_);
  }
  if (const std::int64_t every = options_.checkpoint_every; every > 0) {
    next = std::min(next, (job_.step() / every + 1) * every);
  }
  return next;
}

// Leaves the step's batch in at_. False at the end of the run.
bool Trainer::begin_step() {
  if (steps_done() >= total_steps_ || job_.stopping()) {
    return false;
  }
  const std::int64_t planned = steps_done();
  publish_step(planned);
  set_learning_rate(*optimizer_, learning_rate());
  if (at_ != std::default_sentinel) {
    ++at_;
  }
  if (at_ == std::default_sentinel) {  // the first epoch, or the next one
    job_.barrier_at(total_steps_);
    const Split split = options_.augment ? Split::kTrain : Split::kTest;
    at_ = job_.loader(train_, loading(options_, *train_, split)).begin();
  }
  note_membership();
  if (steps_done() != planned) {  // this worker has joined, or got the state of another
    set_learning_rate(*optimizer_, learning_rate() * job_.decision().learning_rate_factor);
  }
  return at_ != std::default_sentinel;
}

// Who wanted to join a job that has ended is none.
void Trainer::note_membership() {
  if (!member_ && at_ != std::default_sentinel) {
    member_ = true;
    io::note_worker_phase(io::WorkerPhase::kMember);
  }
}

double Trainer::learning_rate() const {
  return options_.learning_rate * decay_factor(decay_, steps_done());
}

// A round may go beyond the step at which one is due.
bool Trainer::checkpoint_is_due(std::int64_t before) const {
  const std::int64_t done = steps_done();
  const std::int64_t every = options_.checkpoint_every > 0 ? options_.checkpoint_every : steps_per_epoch_;
  return done / every > before / every || done == total_steps_ || job_.stopping();
}

// `before`: the steps that were done before those after which it may be due.
void Trainer::save_if_due(std::int64_t before) {
  if (!checkpoint_is_due(before)) {
    return;
  }
  try {
    save();
  } catch (const Error& error) {
    if (steps_done() >= total_steps_ || job_.stopping()) {
      throw;
    }
    if (job_.is_first()) {
      warn_(std::string(error.what()) + "; training goes on, the checkpoint before is intact");
    }
  }
}

// What rank 0 alone can see, told to all.
bool Trainer::first_says(bool value) {
  return job_.sum({job_.is_first() && value ? 1.0 : 0.0}).front() > 0.0;
}

void Trainer::make_folder() {
  if (options_.checkpoints.empty()) {
    return;
  }
  std::error_code error;
  if (job_.is_first()) {
    std::filesystem::create_directories(options_.checkpoints, error);
  }
  if (first_says(static_cast<bool>(error))) {
    throw std::invalid_argument(
        "checkpoints is '" + options_.checkpoints.string() + "'; permitted: a folder that can be made (" +
        error.message() + ")");
  }
}

void Trainer::resume() {
  if (options_.resume.empty()) {
    return;
  }
  std::filesystem::path file = options_.resume;  // rank 0's counts
  if (options_.resume == "auto") {
    const auto latest = job_.is_first() ? latest_checkpoint(options_.checkpoints, warn_) : std::nullopt;
    if (!first_says(latest.has_value())) {
      return;
    }
    file = latest.value_or(file);
  }
  try {
    job_.restore(file);
  } catch (const Error& error) {
    throw std::invalid_argument(
        "resume is '" + options_.resume + "'; permitted: a checkpoint of such a run (" + error.what() + ")");
  }
}

// In proportion to the split that training has, so that all are done at about the same moment. The same on all
// workers; nothing for ranks that only serve parameters.
std::vector<std::int64_t> Trainer::evaluation_split() const {
  std::vector<std::int64_t> batches = job_.batch_sizes();
  batches.resize(static_cast<std::size_t>(job_.size()));
  const std::int64_t all = std::accumulate(batches.begin(), batches.end(), std::int64_t{0});
  const std::int64_t together = kMostAtOnce * all / std::ranges::max(batches);
  return deal(together, batches);
}

// Loss, right predictions, all predictions.
void Trainer::add_scores(const Batch& batch, std::vector<double>& sums) const {
  for_each_micro_batch(batch, options_.job.micro_batch, [&](const at::Tensor& data, const at::Tensor& target) {
    const at::Tensor scores = model_->forward(data);
    sums[0] += loss_of(scores, target, at::Reduction::Sum).item<double>();
    sums[1] += static_cast<double>(scores.argmax(-1).eq(target).sum().item<std::int64_t>());
    sums[2] += static_cast<double>(target.ne(kNoTarget).sum().item<std::int64_t>());
  });
}

void Trainer::solo_backward() const {
  for_each_micro_batch(solo_batch_, options_.job.micro_batch, [this](const at::Tensor& data, const at::Tensor& target) {
    at::Tensor loss;
    {
      const Autocast autocast(options_.job.precision, device().type());
      loss = loss_of(solo_model_->forward(data), target, at::Reduction::Mean);
    }
    loss.backward();
  });
}

// As in training, but one after the other.
double Trainer::prepare_seconds() const {
  constexpr std::int64_t kWholeSteps = 16;
  const std::int64_t samples = std::min<std::int64_t>(kMostAtOnce, train_->size());
  const SamplerOptions sequence = order(samples);
  const LoaderOptions options = loading(options_, *train_, options_.augment ? Split::kTrain : Split::kTest);
  BatchSource source(train_, sequence, options, {.threads = 0, .capacity = 1}, device());
  Sampler sampler(sequence);
  const double seconds = median_of([&] {
    const double once = seconds_of(device(), [&] { (void)source.take(sampler, std::vector{samples}, 0); });
    if (sampler.steps_per_epoch() > kWholeSteps) {  // the last may be a part
      sampler.advance();
    }
    return once;
  });
  return seconds / static_cast<double>(samples);
}

// After a backward pass each, as in training: with caches full of other things it takes several times as long.
double Trainer::update_seconds() {
  constexpr std::int64_t kSamples = 32;
  prepare_solo(std::min(kSamples, train_->size()));
  const auto optimizer = make_optimizer(options_, solo_model_->parameters());
  const double seconds = median_of([&] {
    solo_backward();
    return seconds_of(device(), [&] { optimizer->step(); });
  });
  solo_model_ = seeded_model(options_, *train_, device());  // those of the other have moved
  return seconds;
}

// A network and samples of its own, so that the job's gradients and statistics stay as they are.
void Trainer::prepare_solo(std::int64_t batch) {
  if (!solo_model_) {
    solo_model_ = seeded_model(options_, *train_, device());
  }
  if (!solo_batch_.data.defined() || solo_batch_.data.size(0) != batch) {
    const SamplerOptions first = order(batch);
    const LoaderOptions options = loading(options_, *train_, Split::kTest);
    BatchSource source(train_, first, options, {.threads = 0, .capacity = 1}, device());
    solo_batch_ = source.take(Sampler(first), std::vector{batch}, 0);
  }
}

Trainer::~Trainer() = default;

}  // namespace isochron::train
