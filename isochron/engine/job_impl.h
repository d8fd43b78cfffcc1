// What is behind a Job whose workers are in step. job_steps.cc has the steps as they should go, job_recovery.cc what
// happens when they do not and when workers come and go.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isochron/core/policy/memory_ceilings.h"
#include "isochron/core/replica/known_sizes.h"
#include "isochron/engine/batch_source.h"
#include "isochron/engine/buffer_copies.h"
#include "isochron/engine/exchange.h"
#include "isochron/engine/job.h"
#include "isochron/engine/job_driver.h"
#include "isochron/engine/job_state.h"
#include "isochron/engine/learning_rate.h"
#include "isochron/engine/membership.h"
#include "isochron/engine/stop_signal.h"
#include "isochron/engine/sync_batch_norm.h"

namespace isochron {

class Job::Impl final : public Job::Driver, private Member {
 public:
  explicit Impl(JobOptions options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() override;

  void prepare(torch::nn::Module& model, torch::optim::Optimizer& optimizer) override;
  void open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) override;
  // False if the loop is over.
  bool begin_step(Batch& batch) override;
  bool backward(const at::Tensor& loss) override;
  bool backward(const Batch& batch, const LossOf& loss_of) override;
  void give_up_step(const std::exception_ptr& error) override;
  void finish_step() override;
  std::vector<double> sum(const std::vector<double>& values) override;
  void save(const std::filesystem::path& path) override;
  void restore(const std::filesystem::path& path) override;
  void close() override;

  int rank() const override { return membership_->rank(); }
  int size() const override { return membership_->size(); }
  bool is_first() const override { return rank() == 0 && admission_ == nullptr; }
  Controller& controller() override { return controller_; }
  std::int64_t step() const override { return controller_.decision().step; }
  std::int64_t epoch() const override {
    return sampler_ ? sampler_->state().epoch : resumed_ ? resumed_->sampler.epoch : 0;
  }
  const Decision& decision() override { return controller_.decision(); }
  std::int64_t steps_per_epoch() const override { return sampler().steps_per_epoch(); }
  std::int64_t next_record() const override { return step(); }
  void meet_at(std::int64_t /*step*/) override {}  // they always do
  PushCounts push_counts() const override { return {}; }
  const Sampler& sampler() const;
  const Ledger& ledger() const override;
  const StepRecord& last_step() const override { return record_; }
  double loss_weight() const override;
  void stop() override { stop_wanted_ = true; }
  bool stopping() const override { return stopping_; }
  int stop_signal() const override { return stop_signal_; }

 private:
  using Clock = std::chrono::steady_clock;

  enum class Phase : std::uint8_t {
    kBetween,    // two steps
    kComputing,  // a batch is out
    kComputed,   // its gradients are there; by the next call the optimizer has used them
  };

  static void require(bool condition, const char* what);
  static double seconds(Clock::duration duration);
  double now() const { return seconds(Clock::now() - began_); }

  // Steps.
  const std::vector<Worker>& workers() const { return controller_.roster().workers; }
  std::int64_t my_batch() const { return slices_[static_cast<std::size_t>(rank())].size(); }
  void build_on_group(Start start);
  void take_batch(Batch& batch);
  void compute_pieces(const Batch& batch, const LossOf& loss_of);
  void reduce(const at::Tensor& loss, double weight, const std::function<double()>& mean_loss);
  Report measure(double loss);
  void complete_step(const std::vector<Report>& reports);
  void note_samples();
  void note_stop(const std::vector<Report>& reports);
  void note_newcomer(const std::vector<Report>& reports);
  void raise_ceilings();
  void follow(const SavedJob& saved);
  SavedJob saved();

  // Recovery.
  WorldOptions world_options();
  // Runs part of a step; false if the step did not happen.
  bool attempt(const std::function<bool()>& compute);
  // Runs an exchange between two steps; false if the workers changed meanwhile.
  bool try_together(const std::function<void()>& exchange);
  void recover(const std::vector<Peer>& suspects);
  void let_go();
  void undo_step();
  void take_up(const Settlement& settlement);
  std::vector<Worker> with_ceilings(std::vector<Worker> members) const;
  // Of the state of the job: the controller and what is known of memory.
  void restore_policy(const SavedJob& job);
  // The controller deals to the members as they are, if it does not already.
  void fit_to_members();
  // Where what is known of memory leaves no room for the global batch, it is computed in pieces, or tried once more.
  void change_workers(const Settlement& settlement);
  // Of those who ran out of memory just now; false if there are none, or they cannot.
  bool change_to_pieces(const Settlement& settlement);
  bool join();
  void admit();
  void tell(const std::string& event, WorkerId worker, const std::string& words);
  void warn(const std::string& words) const;
  // The averaged gradient is not finite; false, since no gradient is left.
  bool handle_numbers();
  void roll_back(const std::string& words);

  // Member.
  Standing standing() const override;
  void finish_unreported() override;
  Checkpoint state() override;
  void take_over(const Checkpoint& state) override;

  JobOptions options_;
  std::unique_ptr<Admission> admission_;  // until this process has joined the job it was started for
  std::atomic<std::int64_t> patience_ms_;
  std::unique_ptr<Membership> membership_;
  Controller controller_;
  MemoryCeilings ceilings_;
  WorkerId next_id_;
  std::vector<Worker> members_;  // by rank, with the bounds that they gave themselves
  Worker self_;
  const bool pieces_;  // some worker computes its batch in pieces from the start
  std::optional<SyncBatchNorm> norms_;
  std::optional<StopSignal> signals_;
  Clock::time_point began_;

  torch::nn::Module* model_ = nullptr;
  torch::optim::Optimizer* optimizer_ = nullptr;
  std::optional<LearningRate> rate_;
  std::optional<DataParallel> parallel_;
  std::optional<BufferCopies> buffers_;
  bool may_compute_in_pieces_ = false;
  std::int64_t micro_batch_;  // 0: all at once

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
  std::int64_t failed_batch_ = 0;  // memory did not hold it
  bool in_pieces_ = false;         // computed by a function that can be called for pieces
  KnownSizes known_sizes_{options_.device.is_cpu()};

  // Of the last gradient, for AdaScale.
  double local_square_ = 0.0;
  double global_square_ = 0.0;
  bool moments_known_ = false;

  bool newcomer_due_ = false;          // all know that somebody is ready to join
  std::vector<WorkerId> evicted_;      // in the recovery under way
  bool diagnosing_ = false;            // this step's gradients are looked at before they are averaged
  std::int64_t rolled_back_for_ = -1;  // the step
  std::filesystem::path last_saved_;

  StepRecord record_;
  bool stop_wanted_ = false;
  bool stopping_ = false;
  int stop_signal_ = 0;
};

}  // namespace isochron
