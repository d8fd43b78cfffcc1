// A worker's way through an asynchronous job, whatever computes its gradients. One iteration:
//   a) next() tells the coordinator that the worker is free, and what there is to say of the iteration before; the
//      answer comes at once, or when the bound permits: positions of the epoch, or the call to a barrier;
//   b) start_pull() asks all servers for the parameters, which come while samples are fetched; finish_pull();
//   c) the framework computes and calls computed(), and sends its gradients with begin_push() and the client;
//   d) finish() waits until the servers have applied the update.
// At a barrier nothing is under way: reach_barrier() brings everybody the same parameters, compares how many updates
// were sent and applied, and moves on in the epoch; enter() leaves it.
//
// When somebody is lost, every call throws PeerError. A job that goes on without it calls let_go(), brings those who
// are left together and calls take_up() with a new link (session_recovery.cc). Not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isochron/core/dispatch/coordinator.h"
#include "isochron/core/dispatch/messages.h"
#include "isochron/core/policy/controller.h"
#include "isochron/core/rate/rate.h"
#include "isochron/core/replica/known_sizes.h"
#include "isochron/core/sample/ledger.h"
#include "isochron/server/knowledge.h"
#include "isochron/server/link.h"
#include "isochron/server/parameter_client.h"
#include "isochron/server/parameter_server.h"

namespace isochron::server {

struct SessionOptions {
  std::int64_t global_batch = 0;
  std::optional<std::int64_t> bound;  // iterations ahead of the slowest; none: any number
  PushRate push_rate;
  ControllerOptions controller;
  bool cpu = true;  // a batch of a new size takes this worker's device no longer than another
};

// Who takes part: by rank, those who only serve at the end.
struct Members {
  std::vector<Worker> workers;
  int rank = 0;
  int trainers = 0;  // the first so many ranks

  [[nodiscard]] int size() const { return static_cast<int>(workers.size()); }
  [[nodiscard]] bool trains() const { return rank < trainers; }
  // Where nobody serves only, everybody does.
  [[nodiscard]] int first_server() const { return trainers < size() ? trainers : 0; }
  [[nodiscard]] int servers() const { return size() - first_server(); }
  [[nodiscard]] const Worker& self() const { return workers[static_cast<std::size_t>(rank)]; }
};

// Where the job is in the data, and in its log.
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t position = 0;
  std::int64_t samples_per_epoch = 0;
  Ledger ledger = Ledger(0);
  std::int64_t next_record = 0;
};

// What a framework brings. Called in the thread that calls the session.
class SessionOwner {
 public:
  virtual ~SessionOwner() = default;

  // Collective: what everybody says, by rank.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  // Collective at the end of a barrier: whether it counts, which is the same for all who are left. `ok`: here it does.
  virtual bool agree(bool ok) = 0;
  // At a barrier, when the parameters are here: what else is to be made equal, by the samples of every worker.
  virtual void average(std::int64_t samples) = 0;
  // A new chunk with these values, of which nothing was learned.
  virtual std::unique_ptr<ServedChunk> serve(std::size_t chunk, Bytes values) = 0;
  // Starts it; frameworks may have something to do in its thread.
  virtual void start(ParameterServer& server) { server.start(); }
  // An update became known.
  virtual void take_record(const UpdateRecord& record) = 0;
  virtual void warn(const std::string& words) = 0;
};

class Session {
 public:
  enum class Phase : std::uint8_t {
    kBarrier,    // all are together
    kFree,       // between two iterations
    kComputing,  // the parameters are here
    kPushing,    // the gradient is on its way
  };

  // `owner` must outlive this.
  Session(SessionOptions options, Members members, DataPosition place, SessionOwner& owner);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // `chunks` are this rank's; `values`, by strip, are where parameters are received; `learned` is the controller, with
  // what it knows so far.
  void begin(
      std::shared_ptr<Link> link,
      ParameterLayout layout,
      std::vector<Space> values,
      ParameterServer::Chunks chunks,
      Controller learned);

  // Leaves a barrier; samples up to position `end` may be used. Local: requests that come before their server has
  // resumed wait for it.
  void enter(std::int64_t end);
  // `stop`: 0, or 1 to end all loops, or 1 plus the number of the signal that asks for it. After a call to a barrier
  // comes reach_barrier(). Throws NonFiniteError if the job is to end because somebody's gradient is not finite.
  const Assignment& next(std::int64_t stop);
  void start_pull();
  void finish_pull();
  // The last gradient is there. What is known of the iteration: compute_seconds and warm are set here.
  IterationReport& report() { return report_; }
  void computed();
  // The gradients of this iteration are means that count with `weight` in a round.
  void begin_push(double weight, const std::vector<ParameterClient::StripRate>& strips);
  // Without begin_push() there is no update, but the samples are used.
  void finish();
  // Collective.
  void reach_barrier();

  // An error of this worker's ends the job on all workers, with the same words.
  void fail(const std::exception& error);
  // Not orderly: the others take this worker for lost.
  void close(bool orderly);

  // Recovery. Whom the coordinator has waited for in vain:
  std::vector<Peer> let_go();
  // Collective. Goes on among `members`, from wherever each was. `link`: between them.
  void take_up(Members members, std::shared_ptr<Link> link);
  // Before begin() there is only the controller to go on with.
  [[nodiscard]] bool begun() const { return client_.has_value(); }

  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] const Members& members() const { return members_; }
  [[nodiscard]] const Assignment& order() const { return order_; }
  [[nodiscard]] const Decision& decision() const { return order_.decision; }
  [[nodiscard]] const DataPosition& place() const { return place_; }
  [[nodiscard]] const std::optional<UpdateRecord>& last_update() const { return last_update_; }
  [[nodiscard]] UpdateCounts counts() const { return counts_; }
  [[nodiscard]] bool in_rounds() const { return options_.bound == 0; }
  // That this worker used since the last barrier.
  [[nodiscard]] std::int64_t samples() const { return samples_; }
  [[nodiscard]] ParameterClient& client() { return *client_; }
  // At a barrier: this rank's, null if it has none.
  ParameterServer::Chunks* chunks() { return server_ ? &server_->chunks() : nullptr; }
  // At a barrier, where the coordinator is; elsewhere as it was when that took over.
  [[nodiscard]] Controller& controller();
  [[nodiscard]] bool coordinates() const { return coordinator_ != nullptr; }
  [[nodiscard]] Controller make_controller(std::vector<Worker> workers) const;

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] double seconds_since_start(Clock::time_point moment) const;
  void start_serving(ParameterServer::Chunks chunks, Controller controller, ClaimPool claims);
  void open_coordinator();
  void take_record(const UpdateRecord& record);
  void come_together();
  void check_counts();
  [[nodiscard]] PushHeader header() const;

  // Recovery. One that the coordinator has not heard of:
  [[nodiscard]] bool has_update() const {
    return phase_ == Phase::kPushing || (phase_ == Phase::kFree && report_.finished);
  }
  [[nodiscard]] Knowledge knowledge() const;
  void settle_rounds(const std::vector<Knowledge>& all);
  void learn_what_was_used(const std::vector<Knowledge>& all);
  [[nodiscard]] ClaimPool claims_left(const std::vector<Knowledge>& all) const;
  std::vector<int> share_out_lost_chunks(const std::vector<Knowledge>& all);
  void restore_chunks(const std::vector<std::size_t>& lost, const std::vector<int>& server_of, int root);
  [[nodiscard]] Controller controller_of_survivors(const std::vector<Knowledge>& all) const;

  const SessionOptions options_;
  Members members_;
  DataPosition place_;
  KnownSizes known_sizes_{options_.cpu};
  SessionOwner& owner_;
  const Clock::time_point began_ = Clock::now();

  std::shared_ptr<Link> link_;
  std::unique_ptr<Coordinator> coordinator_;  // on the first server
  std::optional<Controller> controller_;      // elsewhere
  std::optional<ParameterServer> server_;
  std::optional<ParameterClient> client_;
  std::vector<Worker> roster_;  // of the coordinator's controller

  Phase phase_ = Phase::kBarrier;
  Assignment order_;
  std::int64_t end_ = 0;                     // of the positions up to the coming barrier
  std::vector<UpdateRecord> known_records_;  // since the last barrier
  std::ptrdiff_t known_to_coordinator_ = 0;  // so many when the coordinator began; its own follow
  std::int64_t iterations_ = 0;              // of this worker
  std::int64_t rounds_ = 0;                  // with bound 0: that are over, as far as this one knows
  std::int64_t samples_ = 0;
  double pulled_at_ = 0.0;  // seconds since the start
  Clock::time_point asked_;
  Clock::time_point started_;  // was told to begin
  Clock::time_point ready_;    // parameters were there
  IterationReport report_;
  std::int64_t next_report_ = 0;  // its number
  std::optional<UpdateRecord> last_update_;
  UpdateCounts counts_;

  // In a recovery: the chunks that this process has, and what it knows.
  ParameterServer::Chunks kept_;
  std::vector<Provenance> kept_arrivals_;
  std::vector<UpdateRecord> kept_records_;
  std::string kept_learning_;
};

}  // namespace isochron::server
