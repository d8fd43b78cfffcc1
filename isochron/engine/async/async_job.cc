#include "isochron/engine/async/async_job.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/utils.h>

#include "isochron/comm/mpi_session.h"
#include "isochron/core/error.h"
#include "isochron/core/random/random.h"
#include "isochron/engine/async/mpi_link.h"
#include "isochron/engine/async/shard_optimizer.h"
#include "isochron/engine/async/shard_state.h"
#include "isochron/engine/async/tensor_chunk.h"
#include "isochron/engine/handshake.h"
#include "isochron/io/process_usage.h"

namespace isochron {
namespace {

constexpr std::size_t kBroadcastBytes = std::size_t{25} << 20;

JobOptions started(JobOptions options) {
  validate(options);
  start_mpi();
  return options;
}

int count_workers(const JobOptions& options, int ranks) {
  if (options.async.servers >= ranks) {
    throw std::invalid_argument(
        "servers is " + std::to_string(options.async.servers) + " in a job of " + std::to_string(ranks) +
        " ranks; permitted: fewer than there are, since the others train");
  }
  return ranks - static_cast<int>(options.async.servers);
}

std::vector<Worker> first_of(std::vector<Worker> members, int count) {
  members.resize(static_cast<std::size_t>(count));
  return members;
}

std::vector<std::vector<at::Tensor>> parameter_groups(const torch::optim::Optimizer& optimizer) {
  std::vector<std::vector<at::Tensor>> groups;
  for (const auto& group : optimizer.param_groups()) {
    groups.push_back(group.params());
  }
  return groups;
}

// By strip.
std::vector<server::ParameterClient::StripRate> learning_rates(
    const torch::optim::Optimizer& optimizer, const ParameterLayout& layout) {
  std::vector<server::ParameterClient::StripRate> rates;
  rates.reserve(layout.strips.size());
  for (const Strip& strip : layout.strips) {
    rates.push_back({.rate = optimizer.param_groups()[strip.group].options().get_lr()});
  }
  return rates;
}

void give_all_the_first_ones_values(const Group& group, const torch::nn::Module& model) {
  const std::vector<at::Tensor> parameters = model.parameters();
  c10d::verify_params_across_processes(group, parameters, std::nullopt);
  std::vector<at::Tensor> values;
  for (const std::vector<at::Tensor>& tensors : {parameters, model.buffers()}) {
    std::ranges::transform(tensors, std::back_inserter(values), [](const at::Tensor& t) { return t.detach(); });
  }
  c10d::broadcast_coalesced(group, values, kBroadcastBytes);
}

}  // namespace

Job::Async::Async(JobOptions options)
    : options_(started(std::move(options))),
      membership_(std::make_unique<Membership>(MPI_COMM_WORLD, world_options())),
      members_(isochron::agree(membership_->group(), options_)),
      workers_(count_workers(options_, membership_->size())),
      self_(members_[static_cast<std::size_t>(membership_->rank())]),
      trains_(membership_->rank() < workers_),
      controller_(
          Roster{.workers = first_of(members_, workers_), .global_batch = options_.global_batch},
          {.policy = options_.policy, .rate = options_.rate}) {
  if (options_.handle_signals) {
    signals_.emplace();
  }
  membership_->group()->barrier()->wait();
  began_ = std::chrono::steady_clock::now();
}

Job::Async::~Async() {
  close();
}

double Job::Async::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

std::optional<std::int64_t> Job::Async::bound() const {
  return options_.sync == Sync::kSsp ? std::optional(options_.async.staleness) : std::nullopt;
}

void Job::Async::prepare(const Models& models, const Optimizers& optimizers) {
  if (models.size() != 1 || optimizers.size() != 1) {
    throw std::invalid_argument(
        "prepare() with " + std::to_string(models.size()) + " models and " + std::to_string(optimizers.size()) +
        " optimizers of an asynchronous job; permitted: one of each, for several models a module that has them all");
  }
  model_ = &models[0];
  optimizer_ = &optimizers[0];
  give_all_the_first_ones_values(membership_->group(), *model_);
}

// Whatever the model and the optimizer hold now is what the servers begin with.
void Job::Async::build() {
  TensorLayout layout = make_layout(parameter_groups(*optimizer_), members().servers());
  server::ParameterServer::Chunks chunks = my_chunks(layout);
  spread_optimizer_state(*optimizer_, layout, chunks);
  client_ = std::make_unique<ModelClient>(std::move(layout));
  session_ = std::make_unique<server::Session>(
      server::SessionOptions{
          .global_batch = options_.global_batch,
          .bound = bound(),
          .push_rate = options_.async.rate,
          .controller = {.policy = options_.policy, .rate = options_.rate},
          .cpu = options_.device.is_cpu()},
      members(),
      place_,
      static_cast<server::SessionOwner&>(*this));
  session_->begin(
      std::make_shared<MpiLink>(membership_->comm(), membership_->peers(), options_.patience()),
      client_->layout(),
      client_->places(),
      std::move(chunks),
      std::move(controller_));
}

server::ParameterServer::Chunks Job::Async::my_chunks(const TensorLayout& layout) const {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> strips = layout.make_strips();
  for (std::size_t slot = 0; slot < layout.slots.size(); ++slot) {
    layout.slot_of(strips, slot).copy_(layout.parameters[slot]);
  }
  server::ParameterServer::Chunks chunks;
  for (const std::size_t chunk : layout.chunks_on(rank() - members().first_server())) {
    chunks.emplace(static_cast<std::int64_t>(chunk), serve(layout, chunk, layout.chunk_of(strips, chunk).clone()));
  }
  return chunks;
}

std::unique_ptr<server::ServedChunk> Job::Async::serve(
    const TensorLayout& layout, std::size_t chunk, const at::Tensor& values) const {
  const std::int64_t corrected = options_.async.momentum_correction && !in_rounds() ? workers_ : 0;
  const std::size_t group = layout.strips[layout.chunks[chunk].strip].group;
  return std::make_unique<TensorChunk>(
      values, shard_optimizer(*optimizer_, group, values, corrected), options_.async.rate);
}

std::size_t Job::Async::open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) {
  require(model_ != nullptr, "loader() before prepare()");
  require(phase() == Phase::kBarrier, "loader() in the middle of another");
  if (dataset_ == nullptr) {
    const SamplerOptions order{
        .dataset_size = dataset->size(),
        .global_batch = options_.global_batch,
        .seed = options_.seed,
        .last_batch = options_.last_batch};
    EpochCursor cursor(order);
    if (resumed_) {
      cursor.go_to(*resumed_);
    }
    sampler_ = *cursor.sampler();
    place_.epoch = sampler_->state().epoch;
    place_.position = sampler_->state().position;
    place_.samples_per_epoch = sampler_->samples_per_epoch();
    place_.ledger = cursor.ledger();
    dataset_ = dataset;
    source_ = std::make_unique<BatchSource>(
        dataset_,
        order,
        loader,
        data::PrefetchOptions{.threads = options_.prefetch_threads, .capacity = 0},
        options_.device);
  }
  require(dataset == dataset_, "loader() with a second dataset; an asynchronous job trains on one");
  enter();
  loop_is_new_ = true;
  return 0;
}

void Job::Async::begin_loop(std::size_t /*data*/) {
  if (!loop_is_new_ && phase() == Phase::kBarrier) {  // a loader that is iterated again
    enter();
  }
  loop_is_new_ = false;
}

void Job::Async::enter() {
  if (!session_) {
    build();
  }
  const server::DataPosition& at = session_->place();
  std::int64_t end = at.samples_per_epoch;
  if (barrier_at_ >= 0) {
    const std::int64_t wanted = (barrier_at_ - at.epoch * sampler_->steps_per_epoch()) * options_.global_batch;
    end = std::clamp(wanted, at.position, end);
  }
  session_->enter(end);
}

bool Job::Async::begin_step(Batch& batch) {
  while (phase() != Phase::kBarrier) {
    try {
      finish_step();
      return next_batch(batch);
    } catch (const PeerError& error) {
      recover(error);
    }
  }
  return false;
}

bool Job::Async::next_batch(Batch& batch) {
  const int signal = signals_ ? StopSignal::received() : 0;
  const Assignment& order = session_->next(signal != 0 ? 1 + signal : stop_wanted_ ? 1 : 0);
  if (order.barrier) {
    reach_barrier();
    return false;
  }
  started_ = std::chrono::steady_clock::now();
  cpu_started_ = io::cpu_seconds();
  session_->start_pull();
  const std::int64_t epoch = session_->place().epoch;
  torch::manual_seed(
      mix_key({options_.seed, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(order.first)}));
  batch = source_->take(
      {.seed = options_.seed, .epoch = epoch, .position = session_->place().position},
      {.first = order.first, .last = order.last});
  session_->finish_pull();
  client_->take_values();
  return true;
}

void Job::Async::take_record(const UpdateRecord& record) {
  if (record.worker.id == self_.id) {
    record_ = record;
  }
  if (options_.on_update) {
    options_.on_update(record);
  }
}

void Job::Async::require_batch(const BackwardPass& pass) const {
  require(
      pass.is_last(),
      "backward() of an asynchronous job is told its optimizers; permitted: backward(loss), once, with the sum of its "
      "losses");
  require(
      phase() != Phase::kPushing,
      "backward() a second time for a batch, whose gradient has gone; permitted: once, with the sum of its losses");
  require(phase() == Phase::kComputing, "backward() without a batch of the loader");
}

bool Job::Async::backward(const at::Tensor& loss, const BackwardPass& pass) {
  require_batch(pass);
  compute(loss, 1.0);
  return computed(loss.item<double>());
}

bool Job::Async::backward(const Batch& batch, const LossOf& loss_of, const BackwardPass& pass) {
  require_batch(pass);
  const std::int64_t samples = batch.data.size(0);
  const std::int64_t most = options_.micro_batch > 0 ? options_.micro_batch : samples;
  double total = 0.0;
  for (std::int64_t first = 0; first < samples; first += most) {
    const std::int64_t size = std::min(most, samples - first);
    const at::Tensor loss = loss_of(batch.data.narrow(0, first, size), batch.target.narrow(0, first, size));
    const double share = static_cast<double>(size) / static_cast<double>(samples);
    total += share * loss.item<double>();
    if (first + size < samples) {
      torch::autograd::backward({loss * share}, {});
    } else {
      compute(loss, share);
    }
  }
  return computed(total);
}

// The last backward pass of an iteration, in which the gradient leaves.
void Job::Async::compute(const at::Tensor& loss, double share) {
  const Assignment& order = session_->order();
  const double weight =
      in_rounds() ? static_cast<double>(order.batch()) / static_cast<double>(order.round_samples) : 1.0;
  session_->begin_push(weight, learning_rates(*optimizer_, client_->layout()));
  client_->begin_push(session_->client(), options_.on_nonfinite != OnNonFinite::kIgnore);
  torch::autograd::backward({loss * share}, {});
}

bool Job::Async::computed(double loss) {
  session_->computed();
  for (const at::Tensor& parameter : model_->parameters()) {
    at::Tensor(parameter).mutable_grad().reset();  // servers take the step
  }
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  IterationReport& report = session_->report();
  report.usage = io::process_usage(cpu_started_, wall);
  report.loss = loss;
  return true;
}

void Job::Async::finish_step() {
  require(phase() != Phase::kComputing, "the loader went on to the next step before backward()");
  while (phase() == Phase::kPushing) {
    try {
      finish_update();
    } catch (const PeerError& error) {
      recover(error);
    }
  }
}

void Job::Async::finish_update() {
  const bool finite = client_->send_rest();
  const Assignment order = session_->order();
  session_->finish();
  client_->release();
  IterationReport& report = session_->report();
  if (!finite || (options_.on_nonfinite != OnNonFinite::kIgnore && !std::isfinite(report.loss))) {
    const std::string words = "the gradient of " + self_.name + " for positions " + std::to_string(order.first) +
                              " to " + std::to_string(order.last) + " of epoch " +
                              std::to_string(session_->place().epoch) + " is not finite (loss " +
                              std::to_string(report.loss) + ")";
    if (options_.on_nonfinite == OnNonFinite::kStop) {
      report.non_finite = words;
    } else {
      warn(words + "; what is not counts as 0");
    }
  }
}

// Barriers.

void Job::Async::reach_barrier() {
  session_->reach_barrier();
  note_barrier();
  if (is_first() && options_.join_requests && options_.join_requests()) {
    warn("a worker asked to join and was left out; permitted: with sync bsp");
  }
}

void Job::Async::note_barrier() {
  stopping_ = session_->order().stopping;
  stop_signal_ = session_->order().stop_signal;
}

void Job::Async::average(std::int64_t samples) {
  client_->take_values();
  average_statistics(samples);
}

// Those of BatchNorm, by the samples that each worker has seen since the last barrier.
void Job::Async::average_statistics(std::int64_t samples) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> buffers = model_->buffers();
  std::vector<double> sums{static_cast<double>(samples)};
  for (const at::Tensor& buffer : buffers) {
    const at::Tensor values = buffer.detach().to(at::kCPU, at::kDouble).flatten() * static_cast<double>(samples);
    sums.insert(sums.end(), values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel());
  }
  sums = isochron::sum(membership_->group(), sums);
  if (sums.front() == 0.0) {
    return;
  }
  const at::Tensor means = at::from_blob(sums.data(), {std::ssize(sums)}, at::kDouble) / sums.front();
  std::int64_t next = 1;
  for (const at::Tensor& buffer : buffers) {
    const at::Tensor mean = means.narrow(0, next, buffer.numel()).view(buffer.sizes());
    buffer.detach().copy_(at::isIntegralType(buffer.scalar_type(), true) ? mean.round() : mean);
    next += buffer.numel();
  }
}

PushCounts Job::Async::push_counts() const {
  const server::UpdateCounts counts = session_ ? session_->counts() : server::UpdateCounts{};
  return {.sent = counts.sent, .applied = counts.applied};
}

std::vector<double> Job::Async::sum(const std::vector<double>& values) {
  require(phase() == Phase::kBarrier, "sum() in the middle of a loader; permitted in asynchronous modes: between two");
  std::vector<double> sums;
  std::optional<PeerLostError> failure;
  try {
    sums = isochron::sum(membership_->group(), values);
  } catch (const PeerError& error) {
    failure.emplace(error.what(), suspects_of(error));
  }
  if (membership_->agree(!failure)) {
    return sums;
  }
  recover(failure.value_or(PeerLostError("another worker could not add up values", {})));
  throw Interrupted("the workers changed while they added up values; do it again");
}

// When somebody is lost.

WorldOptions Job::Async::world_options() const {
  return {.timeout = options_.patience(), .watch = {}, .fence = options_.fence};
}

ProgressReport Job::Async::progress() const {
  return {.progress = 0, .self = self_, .next_id = members_.size()};
}

void Job::Async::recover(const PeerError& error) {
  warn(error.what());
  std::vector<Peer> suspects = suspects_of(error);
  while (true) {
    const std::vector<Peer> late = session_ ? session_->let_go() : std::vector<Peer>{};
    suspects.insert(suspects.end(), late.begin(), late.end());
    const Settlement settlement = membership_->recover(*this, std::exchange(suspects, {}));
    try {
      take_up(settlement);
      return;
    } catch (const PeerError& another) {
      warn(another.what());
      suspects = suspects_of(another);
    }
  }
}

void Job::Async::take_up(const Settlement& settlement) {
  for (const Worker& lost : missing(members_, settlement.workers)) {
    tell(Event::kDeath, lost.id, lost.name);
  }
  members_ = settlement.workers;
  const std::vector<std::string> all = all_gather(membership_->group(), trains_ ? "trains" : "");
  workers_ = static_cast<int>(std::ranges::count(all, "trains"));
  options_.async.servers = size() - workers_;
  if (session_) {
    session_->take_up(
        members(), std::make_shared<MpiLink>(membership_->comm(), membership_->peers(), options_.patience()));
    client_->move_chunks(session_->client().layout());
    if (phase() == Phase::kBarrier) {
      note_barrier();
    }
  } else if (workers_ > 0) {  // nothing is under way before the first loader
    controller_.change_workers(first_of(members_, workers_));
  }
}

std::vector<std::string> Job::Async::gather(const std::string& mine) {
  return all_gather(membership_->group(), mine);
}

bool Job::Async::agree(bool ok) {
  return ok && membership_->agree(true);
}

std::unique_ptr<server::ServedChunk> Job::Async::serve(std::size_t chunk, server::Bytes values) {
  const TensorLayout& layout = client_->layout();
  const at::Tensor tensor =
      at::empty({layout.chunks[chunk].size()}, at::TensorOptions(layout.types[layout.chunks[chunk].strip]));
  std::ranges::copy(values, static_cast<std::byte*>(tensor.mutable_data_ptr()));
  return serve(layout, chunk, tensor);
}

// What it is asked for.

server::DataPosition Job::Async::place() const {
  return session_ ? session_->place() : place_;
}

JobStatus Job::Async::status() const {
  const server::DataPosition& at = session_ ? session_->place() : place_;
  return {
      .rank = rank(),
      .size = size(),
      .is_first = is_first(),
      .step = step(),
      .epoch = at.epoch,
      .next_record = at.next_record,
      .stopping = stopping_,
      .stop_signal = static_cast<int>(stop_signal_)};
}

std::int64_t Job::Async::step() const {
  const server::DataPosition& at = session_ ? session_->place() : place_;
  const std::int64_t position = phase() == Phase::kBarrier ? at.position : session_->order().first;
  return sampler_ ? at.epoch * sampler_->steps_per_epoch() + position / options_.global_batch : 0;
}

const std::vector<Worker>& Job::Async::workers() const {
  return (session_ ? session_->controller() : controller_).roster().workers;
}

void Job::Async::change_workers(std::vector<Worker> workers) {
  (session_ ? session_->controller() : controller_).change_workers(std::move(workers));
}

const Decision& Job::Async::decision() const {
  return session_ ? session_->decision() : controller_.decision();
}

const Sampler& Job::Async::sampler() const {
  require(sampler_.has_value(), "no loader() yet");
  return *sampler_;
}

const Ledger& Job::Async::ledger() const {
  require(sampler_.has_value(), "no loader() yet");
  return (session_ ? session_->place() : place_).ledger;
}

// The place and the learning stay.
void Job::Async::close() {
  if (session_) {
    session_->close(true);
  }
  client_.reset();
  source_.reset();
  model_ = nullptr;
  optimizer_ = nullptr;
}

void Job::Async::warn(const std::string& words) {
  if (options_.warn) {
    options_.warn(words);
  }
}

void Job::Async::tell(Event event, WorkerId worker, const std::string& words) {
  if (options_.on_event) {
    options_.on_event(
        {.step = place().next_record,
         .seconds = now(),
         .event = std::string(to_string(event)),
         .worker = worker,
         .words = words});
  }
}

}  // namespace isochron
