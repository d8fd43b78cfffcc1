#include "isochron/engine/job.h"

#include "isochron/engine/job_impl.h"

namespace isochron {

Job::Job(const JobOptions& options) : impl_(std::make_unique<Impl>(options)) {
}
Job::~Job() = default;

int Job::rank() const {
  return impl_->rank();
}
int Job::size() const {
  return impl_->size();
}
bool Job::is_first() const {
  return impl_->is_first();
}
void Job::prepare(torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  impl_->prepare(model, optimizer);
}
Epochs Job::epochs(std::int64_t count) {
  return {*this, count};
}
Loader Job::loader(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& options) {
  impl_->open(dataset, options);
  return Loader(*this);
}
bool Job::backward(const at::Tensor& loss) {
  return impl_->backward(loss);
}
bool Job::backward(const Batch& batch, const LossOf& loss_of) {
  return impl_->backward(batch, loss_of);
}
void Job::give_up_step(const std::exception_ptr& error) {
  impl_->give_up_step(error);
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
  return impl_->sum(values);
}
void Job::barrier() {
  impl_->sum({});
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
