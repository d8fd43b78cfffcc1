// The thread that serves this process's chunks of the parameters, and the coordinator if it is here.
//
// It takes requests from anybody in the order in which they come. A gradient is received straight into a buffer and
// applied when it is complete; values are sent from where they lie. With nothing to do it looks again after a pause
// that grows to 2 ms. The first failure ends it, and the channel's use for everybody.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include "isochron/core/dispatch/coordinator.h"
#include "isochron/core/dispatch/messages.h"
#include "isochron/server/channel.h"
#include "isochron/server/served_chunk.h"

namespace isochron::server {

// The job's coordinator, on the server that has it; reports come and assignments go in the server's thread. Whoever
// keeps the others waiting for twice the time-out is late: those at work may themselves wait for a server that does not
// answer, which they notice first.
struct Coordination {
  Coordinator* coordinator = nullptr;
  std::vector<Peer> peers;  // by rank
};

class ParameterServer {
 public:
  // By their numbers in the layout.
  using Chunks = std::map<std::int64_t, ServedChunk>;

  // `channel` and the coordinator, if any, must outlive this. It begins paused.
  ParameterServer(Channel& channel, Chunks chunks, Coordination coordination);
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;
  ~ParameterServer();

  // Requests wait until resume(). Returns when nothing is under way; the following may be called then.
  void pause();
  void resume();
  // For good.
  void stop();
  Chunks& chunks() { return chunks_; }
  // Gradients that were applied, chunks counted one by one.
  std::int64_t applied() const;
  // The updates of which some chunk arrived here since the last call of forget_arrivals().
  const std::vector<Provenance>& arrivals() const { return arrivals_; }
  void forget_arrivals() { arrivals_.clear(); }
  // Before the first resume(): those of a server whose chunks this one has.
  void take_over(std::vector<Provenance> arrivals) { arrivals_ = std::move(arrivals); }

  // Why it ended; null if it did not.
  std::exception_ptr failure();

 private:
  using Clock = std::chrono::steady_clock;
  struct Incoming {
    PushHeader push;
    int rank = 0;
    at::Tensor gradient;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Outgoing {
    at::Tensor values;  // or
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void run();
  void serve();
  // False at the end.
  bool wait_while_paused();
  bool take_request();
  bool finish_gradients();
  bool finish_sends();
  void receive_gradient(int rank, const PushHeader& push);
  std::int64_t largest(at::ScalarType type) const;
  void answer(const Incoming& incoming);
  void answer(int rank, const PullHeader& pull);
  void hear(int rank, const std::string& report);
  void check_patience() const;
  void note(const Provenance& from);
  void send(int rank, int tag, std::string bytes);
  void drain();

  Channel& channel_;
  Chunks chunks_;
  const Coordination coordination_;
  Clock::time_point heard_ = Clock::now();  // of the coordinator's workers
  std::list<Incoming> incoming_;
  std::list<Outgoing> outgoing_;
  std::map<at::ScalarType, std::vector<at::Tensor>> spare_;  // buffers for gradients
  std::vector<Provenance> arrivals_;
  std::map<WorkerId, std::int64_t> last_arrival_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool pause_wanted_ = true;
  bool paused_ = false;
  bool stop_ = false;
  bool ended_ = false;
  std::exception_ptr failure_;

  std::thread thread_;  // last: it uses the rest
};

}  // namespace isochron::server
