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
#include "isochron/engine/async/peers.h"
#include "isochron/engine/async/shard_state.h"
#include "isochron/engine/handshake.h"
#include "isochron/io/process_usage.h"
#include "isochron/server/shard_optimizer.h"

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

std::vector<double> learning_rates(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) {
    rates.push_back(group.options().get_lr());
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
      members_(agree(membership_->group(), options_)),
      peers_(gather_peers(membership_->group())),
      workers_(count_workers(options_, membership_->size())),
      self_(members_[static_cast<std::size_t>(membership_->rank())]),
      trains_(membership_->rank() < workers_),
      controller_(make_controller(options_, first_of(members_, workers_))),
      decision_(controller_.decision()) {
  if (options_.handle_signals) {
    signals_.emplace();
  }
  membership_->group()->barrier()->wait();
  began_ = Clock::now();
}

Controller Job::Async::make_controller(const JobOptions& options, std::vector<Worker> workers) {
  return {
      Roster{.workers = std::move(workers), .global_batch = options.global_batch},
      {.policy = options.policy, .rate = options.rate}};
}

Job::Async::~Async() {
  close();
}

void Job::Async::require(bool condition, const char* what) {
  if (!condition) {
    throw std::logic_error(what);
  }
}

double Job::Async::seconds_since_start(Clock::time_point moment) const {
  return std::chrono::duration<double>(moment - began_).count();
}

std::optional<std::int64_t> Job::Async::bound() const {
  return options_.sync == Sync::kSsp ? std::optional(options_.async.staleness) : std::nullopt;
}

void Job::Async::prepare(torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  model_ = &model;
  optimizer_ = &optimizer;
  give_all_the_first_ones_values(membership_->group(), model);
}

// Whatever the model and the optimizer hold now is what the servers begin with.
void Job::Async::build() {
  server::Layout layout = server::make_layout(parameter_groups(*optimizer_), server_count());
  channel_.emplace(membership_->comm(), options_.patience());
  server::ParameterServer::Chunks chunks = my_chunks(layout);
  spread_optimizer_state(*optimizer_, layout, chunks);
  start_serving(std::move(chunks), std::move(controller_), ClaimPool(place_.position));
  client_.emplace(*channel_, std::move(layout), server_peers());
}

void Job::Async::start_serving(server::ParameterServer::Chunks chunks, Controller controller, ClaimPool claims) {
  roster_ = controller.roster().workers;
  known_to_coordinator_ = std::ssize(known_records_);
  if (rank() == first_server()) {
    std::vector<std::optional<WorkerId>> workers(static_cast<std::size_t>(size()));
    for (std::size_t rank = 0; std::cmp_less(rank, workers_); ++rank) {
      workers[rank] = members_[rank].id;
    }
    coordinator_ =
        std::make_unique<Coordinator>(Dispatcher(std::move(controller), bound(), std::move(claims), rounds_), workers);
  } else {
    controller_ = std::move(controller);
  }
  if (coordinator_ || !chunks.empty()) {
    server_.emplace(
        *channel_, std::move(chunks), server::Coordination{.coordinator = coordinator_.get(), .peers = peers_});
  }
}

// While the server pauses, so that no report can have come yet.
void Job::Async::open_coordinator() {
  if (coordinator_) {
    const auto early = coordinator_->open(place_.epoch, end_, next_record_);
    ISO_CHECK(early.empty(), "a report came before the coordinator had opened");
  }
}

std::vector<Peer> Job::Async::server_peers() const {
  const auto first = peers_.begin() + first_server();
  return {first, first + server_count()};
}

server::ParameterServer::Chunks Job::Async::my_chunks(const server::Layout& layout) const {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> strips = layout.make_strips();
  for (std::size_t slot = 0; slot < layout.slots.size(); ++slot) {
    layout.slot_of(strips, slot).copy_(layout.parameters[slot]);
  }
  server::ParameterServer::Chunks chunks;
  for (const std::size_t chunk : layout.chunks_on(rank() - first_server())) {
    chunks.emplace(static_cast<std::int64_t>(chunk), serve(layout, chunk, layout.chunk_of(strips, chunk).clone()));
  }
  return chunks;
}

server::ServedChunk Job::Async::serve(const server::Layout& layout, std::size_t chunk, const at::Tensor& values) const {
  const std::int64_t corrected = options_.async.momentum_correction && !in_rounds() ? workers_ : 0;
  const std::size_t group = layout.strips[layout.chunks[chunk].strip].group;
  return {values, server::shard_optimizer(*optimizer_, group, values, corrected), options_.async.rate};
}

void Job::Async::open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) {
  require(model_ != nullptr, "loader() before prepare()");
  require(phase_ == Phase::kMeeting, "loader() in the middle of another");
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
    place_ = sampler_->state();
    ledger_ = cursor.ledger();
    dataset_ = dataset;
    source_ = std::make_unique<BatchSource>(
        dataset_,
        order,
        loader,
        data::PrefetchOptions{.threads = options_.prefetch_threads, .capacity = 0},
        options_.device);
  }
  require(dataset == dataset_, "loader() with a second dataset; a job trains on one");
  enter();
}

// Local: a request that comes before its server has resumed waits for it.
void Job::Async::enter() {
  if (!client_) {
    build();
  }
  if (place_.position == 0) {
    ledger_.emplace(sampler_->samples_per_epoch());
  }
  end_ = sampler_->samples_per_epoch();
  if (meet_at_ >= 0) {
    const std::int64_t wanted = (meet_at_ - place_.epoch * sampler_->steps_per_epoch()) * options_.global_batch;
    end_ = std::clamp(wanted, place_.position, end_);
  }
  known_records_.clear();
  known_to_coordinator_ = 0;
  open_coordinator();
  if (server_) {
    server_->resume();
  }
  samples_ = 0;
  order_ = {};
  order_.first = place_.position;
  report_ = {};
  phase_ = Phase::kFree;
}

bool Job::Async::begin_step(Batch& batch) {
  while (phase_ != Phase::kMeeting) {
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
  report_.stop = signal != 0 ? 1 + signal : stop_wanted_ ? 1 : 0;
  report_.sequence = next_report_;
  asked_ = Clock::now();
  const auto assignment =
      decode<Assignment>(channel_->ask(peers_[static_cast<std::size_t>(first_server())], encode(report_)));
  ++next_report_;
  report_ = {};
  take_in(assignment);
  if (assignment.barrier) {
    meet(assignment);
    return false;
  }
  started_ = Clock::now();
  cpu_started_ = io::process_usage().cpu_seconds;
  client_->start_pull(next_pull());
  torch::manual_seed(
      mix_key({options_.seed, static_cast<std::uint64_t>(place_.epoch), static_cast<std::uint64_t>(order_.first)}));
  batch = source_->take(place_, {.first = order_.first, .last = order_.last});
  client_->finish_pull();
  ready_ = Clock::now();
  pulled_at_ = seconds_since_start(ready_);
  phase_ = Phase::kComputing;
  return true;
}

PullHeader Job::Async::next_pull() const {
  return {.worker = my_id(), .iteration = iterations_, .rounds = rounds_};
}

void Job::Async::take_in(const Assignment& assignment) {
  order_ = assignment;
  rounds_ = in_rounds() ? assignment.iteration : 0;
  decision_ = assignment.decision;
  std::ranges::for_each(assignment.records, [this](const UpdateRecord& record) { take_record(record); });
  if (!assignment.non_finite.empty()) {
    throw NumbersError(assignment.non_finite);
  }
}

void Job::Async::take_record(const UpdateRecord& record) {
  const WorkerStep& worker = record.worker;
  ledger_->stage(
      {.positions = {.first = record.position, .last = record.position + worker.batch}, .worker = worker.id});
  ledger_->commit();
  next_record_ = record.step + 1;
  known_records_.push_back(record);
  if (worker.id == my_id()) {
    record_ = record;
  }
  if (options_.on_update) {
    options_.on_update(record);
  }
}

bool Job::Async::backward(const at::Tensor& loss) {
  require(phase_ == Phase::kComputing, "backward() without a batch of the loader");
  compute(loss, 1.0);
  return computed(loss.item<double>());
}

bool Job::Async::backward(const Batch& batch, const LossOf& loss_of) {
  require(phase_ == Phase::kComputing, "backward() without a batch of the loader");
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
  const std::int64_t batch = order_.batch();
  PushRate by_batch = options_.async.rate;
  by_batch.by_staleness = false;  // the servers know it
  report_.rate_factor = order_.decision.learning_rate_factor *
                        (in_rounds() ? 1.0 : push_factor(by_batch, batch, options_.global_batch, workers_, 0));
  const PushHeader push{
      .from =
          {.worker = my_id(),
           .iteration = iterations_,
           .round = order_.iteration,
           .epoch = place_.epoch,
           .first = order_.first,
           .last = order_.last},
      .round_samples = order_.round_samples,
      .weight = in_rounds() ? static_cast<double>(batch) / static_cast<double>(order_.round_samples) : 1.0,
      .rate = report_.rate_factor};
  client_->begin_push(push, learning_rates(*optimizer_), options_.on_nonfinite != OnNonFinite::kIgnore);
  torch::autograd::backward({loss * share}, {});
}

bool Job::Async::computed(double loss) {
  const auto now = Clock::now();
  for (const at::Tensor& parameter : model_->parameters()) {
    at::Tensor(parameter).mutable_grad().reset();  // servers take the step
  }
  const double wall = std::chrono::duration<double>(now - started_).count();
  report_.compute_seconds = std::chrono::duration<double>(now - ready_).count();
  const io::ProcessUsage usage = io::process_usage();
  report_.cpu = std::min((usage.cpu_seconds - cpu_started_) / wall, 1.0);
  report_.memory = usage.memory;
  report_.loss = loss;
  phase_ = Phase::kPushing;
  return true;
}

void Job::Async::finish_step() {
  if (phase_ == Phase::kComputing) {
    throw std::logic_error("the loader went on to the next step before backward()");
  }
  while (phase_ == Phase::kPushing) {
    try {
      finish_update();
    } catch (const PeerError& error) {
      recover(error);
    }
  }
}

void Job::Async::finish_update() {
  const server::ParameterClient::Pushed pushed = client_->finish_push();
  const auto now = Clock::now();
  report_.finished = true;
  report_.batch = order_.batch();
  report_.warm = known_sizes_.add(report_.batch);
  report_.start = seconds_since_start(started_);
  report_.seconds = std::chrono::duration<double>(now - started_).count();
  report_.waited = std::chrono::duration<double>(started_ - asked_).count();
  report_.staleness = pushed.staleness;
  if (!pushed.finite || (options_.on_nonfinite != OnNonFinite::kIgnore && !std::isfinite(report_.loss))) {
    const std::string words = "the gradient of " + self_.name + " for positions " + std::to_string(order_.first) +
                              " to " + std::to_string(order_.last) + " of epoch " + std::to_string(place_.epoch) +
                              " is not finite (loss " + std::to_string(report_.loss) + ")";
    if (options_.on_nonfinite == OnNonFinite::kStop) {
      report_.non_finite = words;
    } else {
      warn(words + "; what is not counts as 0");
    }
  }
  samples_ += report_.batch;
  ++iterations_;
  phase_ = Phase::kFree;
}

// All hold nothing, and the servers have applied everything. Either all have met, or nobody has.
void Job::Async::meet(const Assignment& barrier) {
  come_together();
  if (!membership_->agree(true)) {
    throw PeerLostError("a worker was lost at a meeting", {});
  }
  if (server_) {
    server_->forget_arrivals();
  }
  if (phase_ == Phase::kMeeting) {  // the second time, because somebody was lost
    return;
  }
  stopping_ = barrier.stopping;
  stop_signal_ = barrier.stop_signal;
  place_.position = barrier.last;
  if (place_.position == sampler_->samples_per_epoch()) {
    ISO_CHECK(ledger_->complete(), "an epoch used some sample twice or not at all");
    ++place_.epoch;
    place_.position = 0;
  }
  phase_ = Phase::kMeeting;
  if (is_first() && options_.join_requests && options_.join_requests()) {
    warn("a worker asked to join and was left out; permitted: with sync bsp");
  }
}

void Job::Async::come_together() {
  client_->start_pull(next_pull());
  client_->finish_pull();
  pulled_at_ = seconds_since_start(Clock::now());
  membership_->group()->barrier()->wait();  // all have pulled
  if (server_) {
    server_->pause();
  }
  average_statistics();
  check_counts();
}

// Those of BatchNorm, by the samples that each worker has seen since the last meeting.
void Job::Async::average_statistics() {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> buffers = model_->buffers();
  std::vector<double> sums{static_cast<double>(samples_)};
  for (const at::Tensor& buffer : buffers) {
    const at::Tensor values = buffer.detach().to(at::kCPU, at::kDouble).flatten() * static_cast<double>(samples_);
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

void Job::Async::check_counts() {
  const double applied = server_ ? static_cast<double>(server_->applied()) : 0.0;
  const std::vector<double> sums = isochron::sum(membership_->group(), {static_cast<double>(client_->sent()), applied});
  counts_ = {.sent = static_cast<std::int64_t>(sums[0]), .applied = static_cast<std::int64_t>(sums[1])};
  ISO_CHECK(
      counts_.sent == counts_.applied,
      "of " + std::to_string(counts_.sent) + " chunks of gradients " + std::to_string(counts_.applied) +
          " were applied");
}

std::vector<double> Job::Async::sum(const std::vector<double>& values) {
  require(phase_ == Phase::kMeeting, "sum() in the middle of a loader; permitted in asynchronous modes: between two");
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

JobStatus Job::Async::status() const {
  return {
      .rank = rank(),
      .size = size(),
      .is_first = is_first(),
      .step = step(),
      .epoch = place_.epoch,
      .next_record = next_record_,
      .stopping = stopping_,
      .stop_signal = static_cast<int>(stop_signal_)};
}

std::int64_t Job::Async::step() const {
  const std::int64_t position = phase_ == Phase::kMeeting ? place_.position : order_.first;
  return sampler_ ? place_.epoch * sampler_->steps_per_epoch() + position / options_.global_batch : 0;
}

const Sampler& Job::Async::sampler() const {
  require(sampler_.has_value(), "no loader() yet");
  return *sampler_;
}

const Ledger& Job::Async::ledger() const {
  require(ledger_.has_value(), "no loader() yet");
  return *ledger_;
}

void Job::Async::close() {
  client_.reset();
  server_.reset();
  coordinator_.reset();
  channel_.reset();
  source_.reset();
  model_ = nullptr;
  optimizer_ = nullptr;
}

void Job::Async::warn(const std::string& words) const {
  if (options_.warn) {
    options_.warn(words);
  }
}

void Job::Async::tell(const std::string& event, WorkerId worker, const std::string& words) {
  if (options_.on_event) {
    options_.on_event(
        {.step = next_record_,
         .seconds = seconds_since_start(Clock::now()),
         .event = event,
         .worker = worker,
         .words = words});
  }
}

}  // namespace isochron
