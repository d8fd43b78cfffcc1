#include "isochron/engine/job.h"

#include "isochron/engine/async/async_job.h"
#include "isochron/engine/job_impl.h"

namespace isochron {

Job::Job(const JobOptions& options) {
  if (options.sync == Sync::kBsp) {
    driver_ = std::make_unique<Impl>(options);
  } else {
    driver_ = std::make_unique<Async>(options);
  }
}
Job::~Job() = default;

int Job::rank() const {
  return driver_->rank();
}
int Job::size() const {
  return driver_->size();
}
bool Job::is_first() const {
  return driver_->is_first();
}
void Job::prepare(torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  driver_->prepare(model, optimizer);
}
Epochs Job::epochs(std::int64_t count) {
  return {*this, count};
}
Loader Job::loader(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& options) {
  driver_->open(dataset, options);
  return Loader(*this);
}
bool Job::backward(const at::Tensor& loss) {
  return driver_->backward(loss);
}
bool Job::backward(const Batch& batch, const LossOf& loss_of) {
  return driver_->backward(batch, loss_of);
}
void Job::give_up_step(const std::exception_ptr& error) {
  driver_->give_up_step(error);
}
std::int64_t Job::step() const {
  return driver_->step();
}
std::int64_t Job::epoch() const {
  return driver_->epoch();
}
std::int64_t Job::steps_per_epoch() const {
  return driver_->steps_per_epoch();
}
const Controller& Job::controller() const {
  return driver_->controller();
}
Controller& Job::controller() {
  return driver_->controller();
}
const Decision& Job::decision() const {
  return driver_->decision();
}
double Job::loss_weight() const {
  return driver_->loss_weight();
}
const UpdateRecord& Job::last_update() const {
  return driver_->last_update();
}
const StepRecord& Job::last_step() const {
  return driver_->last_step();
}
std::int64_t Job::next_record() const {
  return driver_->next_record();
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
void Job::meet_at(std::int64_t step) {
  driver_->meet_at(step);
}
PushCounts Job::push_counts() const {
  return driver_->push_counts();
}
void Job::stop() {
  driver_->stop();
}
bool Job::stopping() const {
  return driver_->stopping();
}
int Job::stop_signal() const {
  return driver_->stop_signal();
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
  return job_->epoch();
}
bool Epochs::Iterator::operator==(std::default_sentinel_t) const {
  return job_->stopping() || job_->epoch() >= count_;
}

}  // namespace isochron
