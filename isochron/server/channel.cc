#include "isochron/server/channel.h"

#include <algorithm>
#include <thread>

#include "isochron/comm/backoff.h"
#include "isochron/comm/mpi_call.h"
#include "isochron/comm/ulfm.h"

namespace isochron::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLongestDrain = std::chrono::seconds(2);

MPI_Comm duplicate(MPI_Comm members) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(members, &copy), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

bool all_ended(std::vector<MPI_Request>& requests) {
  int ended = 0;
  check_mpi(
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &ended, MPI_STATUSES_IGNORE), "MPI_Testall");
  return ended != 0;
}

// False if it is not met within the time.
template <class Condition>
bool wait_until(const Condition& met, std::chrono::milliseconds timeout) {
  const Backoff backoff;
  const auto start = Clock::now();
  while (!met()) {
    const auto waited = Clock::now() - start;
    if (waited > timeout) {
      return false;
    }
    std::this_thread::sleep_for(backoff.sleep_after(waited));
  }
  return true;
}

TimeoutError timed_out(const std::string& what, std::chrono::milliseconds timeout, const std::vector<Peer>& peers) {
  std::string words = what + " timed out after " + std::to_string(timeout.count()) + " ms";
  for (const Peer& peer : peers) {
    words += ", waiting for rank " + std::to_string(peer.rank) + " on " + peer.host;
  }
  return {words, peers};
}

// The partners of what has not ended, each once.
std::vector<Peer> late_ones(std::vector<MPI_Request>& requests, const std::vector<Peer>& partners) {
  std::vector<Peer> late;
  for (std::size_t i = 0; i < partners.size(); ++i) {
    int ended = 0;
    check_mpi(MPI_Test(&requests[i], &ended, MPI_STATUS_IGNORE), "MPI_Test");
    if (ended == 0 && std::ranges::find(late, partners[i].rank, &Peer::rank) == late.end()) {
      late.push_back(partners[i]);
    }
  }
  return late;
}

}  // namespace

Channel::Channel(MPI_Comm members, std::chrono::milliseconds timeout)
    : requests_(duplicate(members)), expected_(duplicate(members)), timeout_(timeout) {
  MPI_Comm_rank(requests_, &rank_);
  MPI_Comm_size(requests_, &size_);
}

// One that failed is not freed: a message on it may still come, and Open MPI 5.0.11 would look for it in vain.
Channel::~Channel() {
  if (whole_) {
    MPI_Comm_free(&requests_);
    MPI_Comm_free(&expected_);
  }
}

// Whatever goes wrong in `action` ends the channel's use.
template <class Action>
auto Channel::failing_for_all(const std::string& what, std::vector<MPI_Request>& requests, const Action& action) {
  try {
    return action();
  } catch (const TimeoutError&) {
    fail();
    drain(requests);
    throw;
  } catch (const PeerError& error) {
    fail();
    drain(requests);
    throw PeerLostError(what + " failed: " + error.what(), {});
  }
}

void Channel::wait(std::vector<MPI_Request>& requests, const std::string& what, const std::vector<Peer>& partners) {
  failing_for_all(what, requests, [&] {
    if (!wait_until([&] { return all_ended(requests); }, timeout_)) {
      throw timed_out(what, timeout_, late_ones(requests, partners));
    }
    requests.clear();
  });
}

std::string Channel::ask(const Peer& coordinator, const std::string& report) {
  const std::string what = "asking for work";
  std::vector<MPI_Request> requests(1, MPI_REQUEST_NULL);
  return failing_for_all(what, requests, [&] {
    check_mpi(
        MPI_Isend(
            report.data(),
            static_cast<int>(report.size()),
            MPI_BYTE,
            coordinator.rank,
            kReportTag,
            requests_,
            requests.data()),
        "MPI_Isend");
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    const auto answered = [&] {
      check_mpi(MPI_Improbe(coordinator.rank, kAssignmentTag, expected_, &found, &message, &status), "MPI_Improbe");
      return found != 0;
    };
    if (!wait_until(answered, 3 * timeout_)) {
      throw timed_out(what, 3 * timeout_, {coordinator});
    }
    int size = 0;
    MPI_Get_count(&status, MPI_BYTE, &size);
    std::string answer(static_cast<std::size_t>(size), '\0');
    check_mpi(MPI_Mrecv(answer.data(), size, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
    if (!wait_until([&] { return all_ended(requests); }, timeout_)) {
      throw timed_out(what, timeout_, {coordinator});
    }
    return answer;
  });
}

void Channel::fail() {
  whole_ = false;
  revoke(requests_);
  revoke(expected_);
}

void Channel::drain(std::vector<MPI_Request>& requests) {
  const auto deadline = Clock::now() + kLongestDrain;
  for (MPI_Request& request : requests) {
    int ended = request == MPI_REQUEST_NULL ? 1 : 0;
    while (ended == 0 && Clock::now() < deadline) {
      if (MPI_Test(&request, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  requests.clear();
}

}  // namespace isochron::server
