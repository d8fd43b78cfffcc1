// Serves this process's chunks of the parameters, and the coordinator if it is here, to all ranks over a link.
//
// Requests are taken from anybody in the order in which they come. A gradient is received straight into a buffer and
// applied when it is complete; values are sent from where they lie. The first failure ends it, and the link for
// everybody.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "isochron/core/dispatch/coordinator.h"
#include "isochron/core/dispatch/messages.h"
#include "isochron/server/link.h"
#include "isochron/server/served_chunk.h"

namespace isochron::server {

class ParameterServer {
 public:
  // By their numbers in the layout.
  using Chunks = std::map<std::int64_t, std::unique_ptr<ServedChunk>>;

  // `link` and the coordinator, which is null where it is elsewhere, must outlive this. It begins paused.
  ParameterServer(Link& link, Chunks chunks, Coordinator* coordinator);
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;
  ~ParameterServer();

  // In a thread of its own, until stop(). `around` is called there with what is to be done.
  using Around = std::function<void(const std::function<void()>&)>;
  void start(const Around& around = [](const std::function<void()>& serve) { serve(); });

  // Requests wait until resume(). Returns when nothing is under way; the following may be called then.
  void pause();
  void resume();
  // For good.
  void stop();
  Chunks& chunks() { return chunks_; }
  // Gradients that were applied, chunks counted one by one.
  [[nodiscard]] std::int64_t applied() const;
  // The updates of which some chunk arrived here since the last call of forget_arrivals().
  [[nodiscard]] const std::vector<Provenance>& arrivals() const { return arrivals_; }
  void forget_arrivals() { arrivals_.clear(); }
  // Before the first resume(): those of a server whose chunks this one has.
  void take_over(std::vector<Provenance> arrivals) { arrivals_ = std::move(arrivals); }

  // Why it ended; null if it did not.
  std::exception_ptr failure();

 private:
  using Clock = Link::Clock;
  using Buffer = std::vector<std::byte>;
  struct Incoming {
    PushHeader push;
    int rank = 0;
    Buffer gradient;
    std::shared_ptr<Transfer> transfer;
  };
  struct Outgoing {
    Values values;
    std::shared_ptr<Transfer> transfer;
  };

  void run();
  void serve();
  // False at the end.
  bool wait_while_paused();
  void say_alive();
  bool take_request();
  void answer(const Request& request);
  bool finish_gradients();
  bool finish_sends();
  void receive_gradient(int rank, const PushHeader& push);
  void answer(int rank, const PushHeader& push, Space gradient);
  void answer(int rank, const PullHeader& pull);
  void hear(int rank, const IterationReport& report);
  void see_off(int rank);
  void check_patience() const;
  void note(const Provenance& from);
  void drain();

  Link& link_;
  Chunks chunks_;
  std::size_t largest_ = 0;  // bytes of a chunk
  Coordinator* const coordinator_;
  Clock::time_point heard_ = Clock::now();  // of the coordinator's workers
  Clock::time_point said_ = Clock::now();   // that it is alive
  std::list<Incoming> incoming_;
  std::list<Outgoing> outgoing_;
  std::vector<Buffer> spare_;
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
