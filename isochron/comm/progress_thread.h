// One thread that starts MPI operations in the order they were submitted, drives all of them at once and reports each
// when it ends. It waits with back-off, since MPI's own waiting burns a core that the backward pass needs.
//
// Large collectives go chunk by chunk, a few at a time, on a communicator of their own: what MPI sets aside for the
// chunks under way stays in the processor's cache (45 MB take half the time), and small ones need not wait for them.
//
// The first failure (a time-out, or any MPI error) ends the communicator's use:
//   a) after a time-out, a roll call finds out who is missing;
//   b) the communicator is revoked, where MPI can, so that the other ranks fail too instead of waiting;
//   c) every started request is tested until it ends, since MPI may still write to its buffer;
//   d) everything in flight, queued or submitted later reports the same error.
// It goes on answering roll calls until it is destroyed, so that those who still wait for others can find out for whom.
// Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include "isochron/comm/backoff.h"
#include "isochron/comm/roll_call.h"
#include "isochron/core/peer_error.h"

namespace isochron {

struct Operation {
  enum class Partners { kAll, kOne, kAny };
  using Requests = std::vector<MPI_Request>;

  std::string name;  // for errors: "allreduce of 1024 x Float"
  Partners partners = Partners::kAll;
  int peer = 0;  // of kOne
  std::chrono::milliseconds timeout{0};
  // Issues non-blocking calls on the communicator; may throw.
  std::function<void(MPI_Comm, Requests&)> start;
  // Instead, for a large collective: issues the next chunk, and says whether there are more.
  std::function<bool(MPI_Comm, Requests&)> start_chunk;
  // Instead, for a collective that a GPU does by itself: whether it has ended; may throw. While one is under way the
  // other ranks are looked after, since no request of MPI's would tell that one is lost.
  std::function<bool()> has_ended;
  // For the same: makes it end, after a failure.
  std::function<void()> cancel;
  // Called once, on the progress thread; `source` is the sender of what was received last. Must not throw. Owns, with
  // `start`, the buffers.
  std::function<void(std::exception_ptr error, int source)> done;
};

// Who should hear that a collective takes long, and when. Both are called on the progress thread.
struct SlowWatch {
  std::function<std::chrono::milliseconds()> patience;  // none: nobody is told
  std::function<void(const std::vector<Peer>& suspects, std::chrono::milliseconds waited)> tell;
};

class ProgressThread {
 public:
  // Collective over `parent`, which is duplicated.
  ProgressThread(MPI_Comm parent, Backoff backoff, SlowWatch watch = {});
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;
  // Waits for what is in flight, each operation up to its time-out.
  ~ProgressThread();

  // From any thread, but collectives in the same order on all ranks.
  void submit(Operation operation);

  // Ends everything with an error now. Returns at once.
  void abort();

  // Those who keep the others waiting: who is silent, or else who is furthest behind; one whose communication has
  // failed is ahead of everybody. May take a second; where most of the others are silent, the time-out beyond that.
  std::vector<Peer> suspects();

  const std::vector<Peer>& peers() const { return roll_call_.peers(); }  // by rank
  int rank() const { return roll_call_.rank(); }
  int size() const { return roll_call_.size(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct InFlight {
    Operation operation;
    Operation::Requests requests;
    Clock::time_point started;
    Clock::time_point deadline;
    bool has_more = false;  // chunks that are not started
  };

  void run();
  // Waits for work, or the given time; false at the end.
  bool take_work(std::deque<Operation>& fresh, std::chrono::nanoseconds pause);
  void start(Operation operation);
  // In the order of submission, so that it is the same on all ranks.
  void start_chunks();
  // Whether anything ended.
  bool advance();
  bool test(InFlight& flight, int& source);
  void check_deadlines(Clock::time_point now);
  // Whether the others can still take part in what a GPU waits for.
  void check_peers(Clock::time_point now);
  void check_patience(Clock::time_point now);
  void answer_questions();
  // Who is missing from the collective under way, by those who may say so.
  std::vector<RollCall::Missing> find_missing();
  TimeoutError timed_out(const Operation& operation);
  PeerLostError lost(const Operation& operation, const std::string& reason) const;
  void fail(std::exception_ptr error);
  void drain();

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Comm comm_for_chunks_ = MPI_COMM_NULL;
  const Backoff backoff_;
  const SlowWatch watch_;
  bool told_ = false;  // since something last ended
  Clock::time_point peers_checked_;
  RollCall roll_call_;
  std::int64_t collectives_started_ = 0;
  std::chrono::milliseconds last_timeout_{0};  // of the operation that was started last
  std::list<InFlight> in_flight_;
  std::exception_ptr failure_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<Operation> queue_;
  bool stop_ = false;
  bool abort_ = false;
  std::vector<std::promise<std::vector<Peer>>> questions_;  // for suspects

  std::thread thread_;
};

}  // namespace isochron
