// What is behind a Job (job.h says what each call means): one class for workers in step, one for those that are not.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <vector>

#include "isochron/engine/job.h"

namespace isochron {

class Job::Driver {
 public:
  virtual ~Driver() = default;

  virtual void prepare(torch::nn::Module& model, torch::optim::Optimizer& optimizer) = 0;
  virtual void open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) = 0;
  // False if the loop is over.
  virtual bool begin_step(Batch& batch) = 0;
  virtual bool backward(const at::Tensor& loss) = 0;
  virtual bool backward(const Batch& batch, const LossOf& loss_of) = 0;
  virtual void give_up_step(const std::exception_ptr& error) = 0;
  virtual void finish_step() = 0;
  virtual std::vector<double> sum(const std::vector<double>& values) = 0;
  virtual void save(const std::filesystem::path& path) = 0;
  virtual void restore(const std::filesystem::path& path) = 0;
  virtual void close() = 0;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool is_first() const = 0;
  virtual Controller& controller() = 0;
  virtual const Decision& decision() = 0;
  virtual std::int64_t step() const = 0;
  virtual std::int64_t epoch() const = 0;
  virtual std::int64_t steps_per_epoch() const = 0;
  virtual std::int64_t next_record() const = 0;
  virtual const Ledger& ledger() const = 0;
  virtual const StepRecord& last_step() const {
    throw std::logic_error("last_step() of an asynchronous job; permitted: last_update()");
  }
  virtual const UpdateRecord& last_update() const {
    throw std::logic_error("last_update() of a synchronous job; permitted: last_step()");
  }
  virtual double loss_weight() const = 0;
  virtual void meet_at(std::int64_t step) = 0;
  virtual PushCounts push_counts() const = 0;
  virtual void stop() = 0;
  virtual bool stopping() const = 0;
  virtual int stop_signal() const = 0;
};

}  // namespace isochron
