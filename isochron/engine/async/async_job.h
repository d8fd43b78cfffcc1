// What is behind a Job whose workers are not in step: parameters lie on servers (isochron/server), a coordinator on one
// of them says who computes what next (core/dispatch), and every worker goes its own way from barrier to barrier.
//
// One iteration of a worker:
//   a) it tells the coordinator that it is free, and what there is to say of the iteration before;
//   b) the coordinator answers, at once or when SSP's bound permits, with positions of the epoch;
//   c) it pulls the parameters from all servers, and prepares its samples meanwhile;
//   d) forward; in backward every chunk of the gradient leaves for its server as soon as it is complete;
//   e) when all servers have applied the update, the iteration is finished: back to a).
//
// The session (server/session.h) knows the protocol, and what happens when a worker or a server is lost; this class has
// the model, the data and the group of workers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isochron/core/replica/saved_replica.h"
#include "isochron/core/trace/event.h"
#include "isochron/engine/async/model_client.h"
#include "isochron/engine/batch_source.h"
#include "isochron/engine/job_driver.h"
#include "isochron/engine/membership.h"
#include "isochron/engine/stop_signal.h"
#include "isochron/server/session.h"

namespace isochron {

class Job::Async final : public Job::Driver, private Member, private server::SessionOwner {
 public:
  explicit Async(JobOptions options);
  Async(const Async&) = delete;
  Async& operator=(const Async&) = delete;
  ~Async() override;

  void prepare(const Models& models, const Optimizers& optimizers) override;
  std::size_t open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) override;
  void begin_loop(std::size_t data) override;
  std::int64_t epoch_of(std::size_t /*data*/) const override { return status().epoch; }
  void end_epoch() override { require(false, "end_epoch() of an asynchronous job; permitted: barrier_at()"); }
  bool begin_step(Batch& batch) override;
  bool backward(const at::Tensor& loss, const BackwardPass& pass) override;
  bool backward(const Batch& batch, const LossOf& loss_of, const BackwardPass& pass) override;
  void finish_step() override;
  std::vector<double> sum(const std::vector<double>& values) override;
  void save(const std::filesystem::path& path) override;
  void restore(const std::filesystem::path& path) override;
  void close() override;

  JobStatus status() const override;
  const std::vector<Worker>& workers() const override;
  void change_workers(std::vector<Worker> workers) override;
  const Decision& decision() const override;
  std::int64_t steps_per_epoch() const override { return sampler().steps_per_epoch(); }
  const Ledger& ledger() const override;
  const UpdateRecord& last_update() const override { return record_; }
  void stop() override { stop_wanted_ = true; }

  // Only of jobs that are not in step.
  void barrier_at(std::int64_t step) { barrier_at_ = step; }
  PushCounts push_counts() const;

 private:
  using Phase = server::Session::Phase;

  int rank() const { return membership_->rank(); }
  int size() const { return membership_->size(); }
  bool is_first() const { return rank() == 0; }
  bool in_rounds() const { return bound() == 0; }
  std::optional<std::int64_t> bound() const;
  Phase phase() const { return session_ ? session_->phase() : Phase::kBarrier; }
  server::DataPosition place() const;
  std::int64_t step() const;
  double now() const;

  void require_batch(const BackwardPass& pass) const;
  const Sampler& sampler() const;
  server::Members members() const { return {.workers = members_, .rank = rank(), .trainers = workers_}; }

  // The parts of the job beside the group.
  void build();
  server::ParameterServer::Chunks my_chunks(const TensorLayout& layout) const;
  void enter();
  bool next_batch(Batch& batch);
  void finish_update();
  void reach_barrier();
  void note_barrier();
  void average_statistics(std::int64_t samples);
  void compute(const at::Tensor& loss, double share);
  bool computed(double loss);
  SavedReplica saved();
  std::string write(const std::filesystem::path& path);
  void tell(Event event, WorkerId worker, const std::string& words);

  // Recovery.
  WorldOptions world_options() const;
  void recover(const PeerError& error);
  void take_up(const Settlement& settlement);

  // Member: all survivors are where they are, and nobody needs another's state.
  ProgressReport progress() const override;

  // SessionOwner.
  std::vector<std::string> gather(const std::string& mine) override;
  bool agree(bool ok) override;
  void average(std::int64_t samples) override;
  std::unique_ptr<server::ServedChunk> serve(std::size_t chunk, server::Bytes values) override;
  std::unique_ptr<server::ServedChunk> serve(
      const TensorLayout& layout, std::size_t chunk, const at::Tensor& values) const;
  void take_record(const UpdateRecord& record) override;
  void warn(const std::string& words) override;

  JobOptions options_;
  std::unique_ptr<Membership> membership_;
  std::vector<Worker> members_;  // by rank, dedicated servers too
  int workers_ = 0;              // the first so many ranks
  Worker self_;                  // whatever rank it has
  bool trains_;                  // or only serves parameters
  Controller controller_;        // until the session has one
  std::optional<StopSignal> signals_;
  std::chrono::steady_clock::time_point began_;

  torch::nn::Module* model_ = nullptr;
  torch::optim::Optimizer* optimizer_ = nullptr;
  std::unique_ptr<ModelClient> client_;
  std::unique_ptr<server::Session> session_;  // after the client: it ends first

  std::optional<DataPlace> resumed_;  // until the dataset is known
  std::shared_ptr<const data::Dataset> dataset_;
  std::optional<Sampler> sampler_;  // for its arithmetic
  std::unique_ptr<BatchSource> source_;
  server::DataPosition place_;  // until the session has it
  std::int64_t barrier_at_ = -1;
  bool loop_is_new_ = false;                       // open() has entered what the loop goes through
  std::chrono::steady_clock::time_point started_;  // was told to begin
  double cpu_started_ = 0.0;

  UpdateRecord record_;
  bool stop_wanted_ = false;
  bool stopping_ = false;
  std::int64_t stop_signal_ = 0;
};

}  // namespace isochron
