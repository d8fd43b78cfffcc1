// The thread that serves this process's pieces of the parameters, and the desk if it is here.
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

#include "isochron/server/channel.h"
#include "isochron/server/layout.h"
#include "isochron/server/protocol.h"
#include "isochron/server/served_piece.h"

namespace isochron::server {

// What a server does beside serving parameters: the caller's own protocol. All calls come from the server's thread.
class Desk {
 public:
  struct Reply {
    int rank = 0;
    std::string words;
  };

  virtual ~Desk() = default;
  // Somebody's words; whom to answer, and what.
  virtual std::vector<Reply> hear(int rank, const std::string& words) = 0;
  // Called now and then; throws if somebody has kept the others waiting for too long.
  virtual void check_patience() = 0;
};

class ParameterServer {
 public:
  // By their numbers in the layout.
  using Pieces = std::map<std::int64_t, ServedPiece>;

  // `channel` and `desk`, if any, must outlive this. It begins paused.
  ParameterServer(Channel& channel, Pieces pieces, Desk* desk);
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;
  ~ParameterServer();

  // Requests wait until resume(). Returns when nothing is under way; the following may be called then.
  void pause();
  void resume();
  // For good.
  void stop();
  Pieces& pieces() { return pieces_; }
  // Gradients that were applied, pieces counted one by one.
  std::int64_t applied() const;
  // The updates of which some piece arrived here since the last call of forget_arrivals().
  const std::vector<Provenance>& arrivals() const { return arrivals_; }
  void forget_arrivals() { arrivals_.clear(); }
  // Before the first resume(): those of a server whose pieces this one has.
  void take_over(std::vector<Provenance> arrivals) { arrivals_ = std::move(arrivals); }

  // Why it ended; null if it did not.
  std::exception_ptr failure();

 private:
  using Clock = std::chrono::steady_clock;
  struct Incoming {
    Push push;
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
  void receive_gradient(int rank, const Push& push);
  std::int64_t largest(at::ScalarType type) const;
  void answer(const Incoming& incoming);
  void answer(int rank, const Pull& pull);
  void hear(int rank, const std::string& words);
  void note(const Provenance& from);
  void send(int rank, int tag, std::string bytes);
  void drain();

  Channel& channel_;
  Pieces pieces_;
  Desk* const desk_;
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
