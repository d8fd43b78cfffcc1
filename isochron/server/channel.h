// The communicators between workers and servers, and how to wait on them without burning a core.
//
// An error of MPI, also of another rank's, makes both unusable for everybody (they are revoked); what is in flight is
// brought to its end, since MPI may still write to its buffers, and PeerLostError is thrown. Threads may share it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <mpi.h>

#include "isochron/comm/error.h"

namespace isochron::server {

// Requests come on a communicator of their own, where servers look for anything from anybody; all that is expected by
// its receiver (gradients, answers, values, assignments) goes over a second one. Tags of requests:
inline constexpr int kPushTag = 1;
inline constexpr int kPullTag = 2;
inline constexpr int kReportTag = 3;
// Tags of what is expected:
inline constexpr int kGradientTag = 1;
inline constexpr int kAnswerTag = 2;
inline constexpr int kAssignmentTag = 3;
inline constexpr int kFirstValuesTag = 16;  // plus the number of the chunk

class Channel {
 public:
  // Collective over `members`, which is duplicated. `timeout` is that of every wait.
  Channel(MPI_Comm members, std::chrono::milliseconds timeout);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  MPI_Comm requests() const { return requests_; }
  MPI_Comm expected() const { return expected_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // Until all have ended; `partners`, by request, are those with whom, or nothing. Throws TimeoutError, which names
  // the partners of requests that have not ended, or PeerLostError.
  void wait(std::vector<MPI_Request>& requests, const std::string& what, const std::vector<Peer>& partners = {});
  // Sends a report to the coordinator's rank and waits for the assignment, both as bytes: three times the usual
  // time-out, since the coordinator itself looks after those whom others wait for.
  std::string ask(const Peer& coordinator, const std::string& report);

  // Ends the use of the communicators, on all ranks.
  void fail();
  bool failed() const { return !whole_; }
  // Brings what was started to its end after fail().
  static void drain(std::vector<MPI_Request>& requests);

 private:
  template <class Action>
  auto failing_for_all(const std::string& what, std::vector<MPI_Request>& requests, const Action& action);

  MPI_Comm requests_ = MPI_COMM_NULL;
  MPI_Comm expected_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> whole_ = true;  // nothing has failed
};

}  // namespace isochron::server
