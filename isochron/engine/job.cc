#include "isochron/engine/job.h"

#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "isochron/engine/async/async_job.h"
#include "isochron/engine/job_impl.h"
#include "isochron/io/worker_phase.h"

namespace isochron {

namespace {

/// For the launcher alone: a job that has come to its end does not fail by it.
void note_end() {
  try {
    io::note_worker_phase(io::WorkerPhase::kEnded);
  } catch (const Error& error) {
    std::cerr << std::string("isochron: ") + error.what() + "\n";
  }
}

}  // namespace

Job::Job(const JobOptions& options) {
  io::note_worker_phase(io::WorkerPhase::kConnecting);
  if (in_step(options.sync)) {
    auto job = std::make_unique<Impl>(options);
    in_step_ = job.get();
    driver_ = std::move(job);
  } else {
    auto job = std::make_unique<Async>(options);
    out_of_step_ = job.get();
    driver_ = std::move(job);
  }
  io::note_worker_phase(io::WorkerPhase::kConnected);
  // Who calls exit() has done its part, too. Before MPI is finalized, since that is registered before.
  static const int registered [[maybe_unused]] = std::atexit(note_end);
}
Job::~Job() {
  note_end();  // before the others are let go, which may take a while
}

int Job::rank() const {
  return driver_->status().rank;
}
int Job::size() const {
  return driver_->status().size;
}
bool Job::is_first() const {
  return driver_->status().is_first;
}
void Job::prepare(const Models& models, const Optimizers& optimizers) {
  driver_->prepare(models, optimizers);
}
Epochs Job::epochs(std::int64_t count) {
  return {*this, count};
}
Loader Job::loader(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& options) {
  return {*this, driver_->open(dataset, options)};
}
void Job::end_epoch() {
  driver_->end_epoch();
}
bool Job::backward(const at::Tensor& loss) {
  return driver_->backward(loss, {});
}
bool Job::backward(const Batch& batch, const LossOf& loss_of) {
  return driver_->backward(batch, loss_of, {});
}
bool Job::backward(const at::Tensor& loss, const Optimizers& optimizers, bool retain_graph) {
  return driver_->backward(loss, {.optimizers = optimizers, .retain_graph = retain_graph});
}
bool Job::backward(const Batch& batch, const LossOf& loss_of, const Optimizers& optimizers) {
  return driver_->backward(batch, loss_of, {.optimizers = optimizers});
}
void Job::give_up_step(const std::exception_ptr& error) {
  if (in_step_ == nullptr) {
    std::rethrow_exception(error);  // its samples are this worker's alone
  }
  in_step_->give_up_step(error);
}
std::vector<std::int64_t> Job::batch_sizes() const {
  std::vector<std::int64_t> sizes = decision().batch_sizes;
  const std::int64_t units = driver_->status().units_per_sample;
  for (std::int64_t& size : sizes) {
    size = (size + units / 2) / units;
  }
  return sizes;
}
std::int64_t Job::step() const {
  return driver_->status().step;
}
std::int64_t Job::epoch() const {
  return driver_->status().epoch;
}
std::int64_t Job::position() const {
  return driver_->status().position;
}
std::int64_t Job::round_steps() const {
  return driver_->status().round_steps;
}
std::int64_t Job::local_step() const {
  return driver_->status().local_step;
}
std::int64_t Job::steps_per_epoch() const {
  return driver_->steps_per_epoch();
}
const std::vector<Worker>& Job::workers() const {
  return driver_->workers();
}
void Job::change_workers(std::vector<Worker> workers) {
  driver_->change_workers(std::move(workers));
}
const Decision& Job::decision() const {
  return driver_->decision();
}
const UpdateRecord& Job::last_update() const {
  return driver_->last_update();
}
const StepRecord& Job::last_step() const {
  return driver_->last_step();
}
std::int64_t Job::next_record() const {
  return driver_->status().next_record;
}
const Ledger& Job::ledger() const {
  return driver_->ledger();
}
std::vector<double> Job::sum(const std::vector<double>& values) {
  return driver_->sum(values);
}
void Job::barrier() {
  driver_->sum({});
}
void Job::finish_step() {
  driver_->finish_step();
}
void Job::barrier_at(std::int64_t step) {
  if (out_of_step_ != nullptr) {
    out_of_step_->barrier_at(step);
  } else {
    in_step_->end_loop_at(step);
  }
}
PushCounts Job::push_counts() const {
  return out_of_step_ != nullptr ? out_of_step_->push_counts() : PushCounts{};
}
void Job::stop() {
  driver_->stop();
}
bool Job::stopping() const {
  return driver_->status().stopping;
}
int Job::stop_signal() const {
  return driver_->status().stop_signal;
}
void Job::save(const std::filesystem::path& path) {
  driver_->save(path);
}
void Job::restore(const std::filesystem::path& path) {
  driver_->restore(path);
}
void Job::close() {
  driver_->close();
}

Loader::Iterator Loader::begin() {
  job_->driver_->begin_loop(data_);
  return Iterator(*job_);
}
Epochs Loader::epochs(std::int64_t count) {
  return {*job_, count, data_};
}
void Loader::Iterator::begin_step() {
  if (!job_->driver_->begin_step(batch_)) {
    job_ = nullptr;
    batch_ = {};
  }
}
Loader::Iterator& Loader::Iterator::operator++() {
  begin_step();
  return *this;
}

std::int64_t Epochs::Iterator::operator*() const {
  return data_ ? job_->driver_->epoch_of(*data_) : job_->epoch();
}
bool Epochs::Iterator::operator==(std::default_sentinel_t) const {
  return job_->stopping() || **this >= count_;
}

}  // namespace isochron
