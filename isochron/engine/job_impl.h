// What is behind a Job whose workers are in step. The replica (core/replica) owns the protocol and all that the workers
// must agree on; each of the other parts has one duty, and this class puts them in order: Steps compute, Recovery goes
// on after a failure, JobCheckpoints save.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isochron/comm/watchdog.h"
#include "isochron/core/replica/replica.h"
#include "isochron/engine/job.h"
#include "isochron/engine/job_checkpoints.h"
#include "isochron/engine/job_datasets.h"
#include "isochron/engine/job_driver.h"
#include "isochron/engine/membership.h"
#include "isochron/engine/patience.h"
#include "isochron/engine/recovery.h"
#include "isochron/engine/step_clock.h"
#include "isochron/engine/steps.h"
#include "isochron/engine/trained_model.h"

namespace isochron {

class Job::Impl final : public Job::Driver {
 public:
  explicit Impl(const JobOptions& options);

  void prepare(const Models& models, const Optimizers& optimizers) override;
  std::size_t open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) override;
  void begin_loop(std::size_t data) override;
  std::int64_t epoch_of(std::size_t data) const override { return datasets_.epoch_of(data); }
  void end_epoch() override;
  bool begin_step(Batch& batch) override;
  bool backward(const at::Tensor& loss, const BackwardPass& pass) override;
  bool backward(const Batch& batch, const LossOf& loss_of, const BackwardPass& pass) override;
  void finish_step() override;
  std::vector<double> sum(const std::vector<double>& values) override;
  void save(const std::filesystem::path& path) override;
  void restore(const std::filesystem::path& path) override;
  void change_workers(std::vector<Worker> workers) override { replica_.change_workers(std::move(workers)); }
  void stop() override { steps_->stop(); }
  void close() override;

  JobStatus status() const override;
  std::int64_t steps_per_epoch() const override { return replica_.sampler().steps_per_epoch(); }
  const std::vector<Worker>& workers() const override { return replica_.members(); }
  const Decision& decision() const override { return replica_.decision(); }
  const Ledger& ledger() const override { return replica_.ledger(); }
  const StepRecord& last_step() const override;

  // Only of jobs in step.
  void give_up_step(const std::exception_ptr& error);
  void end_loop_at(std::int64_t step) { steps_->end_loop_at(step); }

 private:
  Impl(JobOptions options, std::unique_ptr<Admission> admission);

  bool joined();
  void require_no_round(const std::string& call) const;
  // It is this dataset's turn.
  void select(std::size_t data);
  // Whether the optimizer is to take the step.
  bool follow(const StepVerdict& verdict);
  void roll_back(const std::string& reason);
  void note(const StepOutcome& outcome);
  // On another thread.
  void rescue();

  const JobOptions options_;
  Patience patience_;
  Membership membership_;
  Replica replica_;
  JobDatasets datasets_;
  StepClock clock_;
  const std::unique_ptr<TrainedModel> model_;
  const std::unique_ptr<Steps> steps_;
  Recovery recovery_;
  JobCheckpoints checkpoints_;
  const bool in_chunks_;                 // some worker computes its batch in chunks from the start
  std::optional<LastWords> last_words_;  // none without a folder
};

}  // namespace isochron
