// What every job can do, whether its workers are in step or not (job.h says what each call means).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <vector>

#include "isochron/engine/job.h"

namespace isochron {

/// A call that does not fit what the job is at.
inline void require(bool fits, const char* what) {
  if (!fits) {
    throw std::logic_error(what);
  }
}

// Where a job is.
struct JobStatus {
  int rank = 0;
  int size = 1;
  bool is_first = false;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t position = 0;     // in the epoch, of the step under way or the coming one
  std::int64_t local_step = 0;   // of the round under way
  std::int64_t round_steps = 1;  // of the round under way, or of the coming one
  std::int64_t next_record = 0;
  std::int64_t units_per_sample = 1;  // of the decision's batch sizes
  bool stopping = false;
  int stop_signal = 0;
};

class Job::Driver {
 public:
  virtual ~Driver() = default;

  virtual void prepare(const Models& models, const Optimizers& optimizers) = 0;
  // The number of the data, which is the present one now.
  virtual std::size_t open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) = 0;
  // A loop over the data with this number begins, which is the present one from now on.
  virtual void begin_loop(std::size_t data) = 0;
  virtual std::int64_t epoch_of(std::size_t data) const = 0;
  virtual void end_epoch() = 0;
  // False if the loop is over.
  virtual bool begin_step(Batch& batch) = 0;
  virtual bool backward(const at::Tensor& loss, const BackwardPass& pass) = 0;
  virtual bool backward(const Batch& batch, const LossOf& loss_of, const BackwardPass& pass) = 0;
  virtual void finish_step() = 0;
  virtual std::vector<double> sum(const std::vector<double>& values) = 0;
  virtual void save(const std::filesystem::path& path) = 0;
  virtual void restore(const std::filesystem::path& path) = 0;
  virtual void change_workers(std::vector<Worker> workers) = 0;
  virtual void stop() = 0;
  virtual void close() = 0;

  virtual JobStatus status() const = 0;
  virtual std::int64_t steps_per_epoch() const = 0;
  virtual const std::vector<Worker>& workers() const = 0;
  virtual const Decision& decision() const = 0;
  virtual const Ledger& ledger() const = 0;
  virtual const StepRecord& last_step() const {
    throw std::logic_error("last_step() of an asynchronous job; permitted: last_update()");
  }
  virtual const UpdateRecord& last_update() const {
    throw std::logic_error("last_update() of a synchronous job; permitted: last_step()");
  }
};

}  // namespace isochron
