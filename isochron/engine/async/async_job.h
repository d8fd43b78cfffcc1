// What is behind a Job whose workers are not in step: parameters lie on servers (isochron/server), a desk on one of
// them says who computes what next (coordinator.h), and every worker goes its own way from meeting to meeting.
//
// One iteration of a worker:
//   a) it tells the desk that it is free, and what there is to say of the iteration before;
//   b) the desk answers, at once or when SSP's bound permits, with positions of the epoch;
//   c) it pulls the parameters from all servers, and prepares its samples meanwhile;
//   d) forward; in backward every piece of the gradient leaves for its server as soon as it is complete;
//   e) when all servers have applied the update, the iteration is finished: back to a).
//
// At a meeting nothing is under way: all pull the same parameters, running statistics are averaged, and everybody knows
// which samples were used. async_job.cc has iterations and meetings, async_recovery.cc what happens when a worker or a
// server is lost.
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

#include "isochron/core/replica/known_sizes.h"
#include "isochron/core/replica/saved_replica.h"
#include "isochron/engine/async/coordinator.h"
#include "isochron/engine/batch_source.h"
#include "isochron/engine/job_driver.h"
#include "isochron/engine/membership.h"
#include "isochron/engine/stop_signal.h"
#include "isochron/server/channel.h"
#include "isochron/server/parameter_client.h"
#include "isochron/server/parameter_server.h"

namespace isochron {

class Job::Async final : public Job::Driver, private Member {
 public:
  explicit Async(JobOptions options);
  Async(const Async&) = delete;
  Async& operator=(const Async&) = delete;
  ~Async() override;

  void prepare(torch::nn::Module& model, torch::optim::Optimizer& optimizer) override;
  void open(const std::shared_ptr<const data::Dataset>& dataset, const LoaderOptions& loader) override;
  bool begin_step(Batch& batch) override;
  bool backward(const at::Tensor& loss) override;
  bool backward(const Batch& batch, const LossOf& loss_of) override;
  void finish_step() override;
  std::vector<double> sum(const std::vector<double>& values) override;
  void save(const std::filesystem::path& path) override;
  void restore(const std::filesystem::path& path) override;
  void close() override;

  JobStatus status() const override;
  const std::vector<Worker>& workers() const override { return controller().roster().workers; }
  void change_workers(std::vector<Worker> workers) override { controller().change_workers(std::move(workers)); }
  const Decision& decision() const override { return decision_; }
  std::int64_t steps_per_epoch() const override { return sampler().steps_per_epoch(); }
  const Ledger& ledger() const override;
  const UpdateRecord& last_update() const override { return record_; }
  void stop() override { stop_wanted_ = true; }

  // Only of jobs that are not in step.
  void meet_at(std::int64_t step) { meet_at_ = step; }
  PushCounts push_counts() const { return counts_; }

 private:
  using Clock = std::chrono::steady_clock;

  enum class Phase : std::uint8_t {
    kMeeting,    // all are together
    kFree,       // between two iterations
    kComputing,  // a batch is out
    kPushing,    // its gradient is on its way
  };

  int rank() const { return membership_->rank(); }
  int size() const { return membership_->size(); }
  bool is_first() const { return rank() == 0; }
  std::int64_t step() const;
  const Controller& controller() const { return coordinator_ ? coordinator_->dispatcher().controller() : controller_; }
  Controller& controller() { return coordinator_ ? coordinator_->dispatcher().controller() : controller_; }

  static void require(bool condition, const char* what);
  double seconds_since_start(Clock::time_point moment) const;
  const Sampler& sampler() const;
  int server_count() const { return options_.async.servers > 0 ? static_cast<int>(options_.async.servers) : size(); }
  int first_server() const { return options_.async.servers > 0 ? workers_ : 0; }
  std::optional<std::int64_t> bound() const;
  bool in_rounds() const { return bound() == 0; }

  static Controller make_controller(const JobOptions& options, std::vector<Worker> workers);
  WorkerId my_id() const { return self_.id; }

  // The parts of the job beside the group.
  void build();
  // `controller` is the desk's where that is here.
  void start_serving(server::ParameterServer::Pieces pieces, Controller controller, ClaimPool claims);
  std::vector<Peer> server_peers() const;
  server::ParameterServer::Pieces my_pieces(const server::Layout& layout) const;
  std::vector<Seat> seats() const;
  void enter();
  bool next_batch(Batch& batch);
  void finish_update();
  void take_in(const NextWords& words);
  void take_news(const std::string& lines);
  void meet(const NextWords& words);
  void come_together();
  void average_statistics();
  void check_counts();
  void compute(const at::Tensor& loss, double share);
  bool computed(double loss);
  SavedReplica saved();
  void warn(const std::string& words) const;
  void tell(const std::string& event, WorkerId worker, const std::string& words);

  // Recovery.
  struct Knowledge;
  // One that the desk has not heard of.
  bool has_update() const { return phase_ == Phase::kPushing || (phase_ == Phase::kFree && report_.finished); }
  WorldOptions world_options() const;
  void recover(const PeerError& error);
  std::vector<Peer> let_go();
  void take_up(const Settlement& settlement);
  Knowledge knowledge();
  void change_members(const Settlement& settlement, const std::vector<Knowledge>& all);
  void settle_rounds(const std::vector<Knowledge>& all);
  void learn_what_was_used(const std::vector<Knowledge>& all);
  ClaimPool claims_left(const std::vector<Knowledge>& all) const;
  std::vector<int> share_out_lost_pieces(const std::vector<Knowledge>& all);
  server::ServedPiece serve(const server::Layout& layout, std::size_t piece, const at::Tensor& values) const;
  Controller controller_of_survivors(const std::vector<Knowledge>& all) const;

  // Member: all survivors are where they are, and nobody needs another's state.
  ProgressReport progress() const override;

  JobOptions options_;
  std::unique_ptr<Membership> membership_;
  std::vector<Worker> members_;  // by rank, dedicated servers too
  std::vector<Peer> peers_;      // by rank
  int workers_ = 0;              // the first so many ranks
  Worker self_;                  // whatever rank it has
  bool trains_;                  // or only serves parameters
  Controller controller_;        // as it was when the desk took over
  std::vector<Worker> roster_;   // of the desk's
  Decision decision_;            // as far as this worker knows
  std::optional<StopSignal> signals_;
  Clock::time_point began_;

  torch::nn::Module* model_ = nullptr;
  torch::optim::Optimizer* optimizer_ = nullptr;
  std::optional<server::Channel> channel_;
  std::unique_ptr<Coordinator> coordinator_;  // where the desk is
  std::optional<server::ParameterServer> server_;
  std::optional<server::ParameterClient> client_;
  // In a recovery: the pieces that this process has, and what it knows.
  server::ParameterServer::Pieces kept_;
  std::vector<server::Provenance> kept_arrivals_;
  std::vector<std::string> kept_news_;
  std::string kept_learning_;

  std::optional<DataPlace> resumed_;  // until the dataset is known
  std::shared_ptr<const data::Dataset> dataset_;
  std::optional<Sampler> sampler_;  // for its arithmetic; the place is place_
  std::optional<Ledger> ledger_;
  std::unique_ptr<BatchSource> source_;
  SamplerState place_;
  std::int64_t meet_at_ = -1;
  std::int64_t end_ = 0;                 // of the positions up to the coming meeting
  std::vector<std::string> known_news_;  // lines, since the last meeting
  std::ptrdiff_t known_to_desk_ = 0;     // so many when the desk began; its own follow
  double pulled_at_ = 0.0;               // seconds since the start
  KnownSizes known_sizes_{options_.device.is_cpu()};

  Phase phase_ = Phase::kMeeting;
  NextWords order_;
  std::int64_t iterations_ = 0;  // of this worker
  std::int64_t rounds_ = 0;      // with bound 0: that are over, as far as this one knows
  std::int64_t samples_ = 0;     // it used since the last meeting
  Clock::time_point asked_;
  Clock::time_point started_;  // was told to begin
  Clock::time_point ready_;    // parameters and samples were there
  double cpu_started_ = 0.0;
  FreeWords report_;

  UpdateRecord record_;
  std::int64_t next_record_ = 0;
  PushCounts counts_;
  bool stop_wanted_ = false;
  bool stopping_ = false;
  std::int64_t stop_signal_ = 0;
};

}  // namespace isochron
