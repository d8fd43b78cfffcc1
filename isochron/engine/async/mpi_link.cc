#include "isochron/engine/async/mpi_link.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "isochron/comm/backoff.h"
#include "isochron/comm/mpi_call.h"
#include "isochron/comm/ulfm.h"
#include "isochron/comm/watchdog.h"

namespace isochron {
namespace {

using Clock = server::Link::Clock;

constexpr auto kLongestDrain = std::chrono::seconds(2);
// What a call may take, beyond twice the time-out, as that of the thread that drives MPI.
constexpr auto kTimeBeyond = std::chrono::seconds(15);

// Around what is asked of MPI, which may never return.
WatchedThread watched(std::chrono::milliseconds timeout) {
  return {"a link between asynchronous workers", 2 * timeout + kTimeBeyond};
}

MPI_Comm duplicate(MPI_Comm members, std::chrono::milliseconds timeout) {
  const WatchedThread watch = watched(timeout);
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(members, &copy), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

bool has_ended(MPI_Request& request) {
  int ended = 0;
  check_mpi(MPI_Test(&request, &ended, MPI_STATUS_IGNORE), "MPI_Test");
  return ended != 0;
}

void bring_to_end(MPI_Request& request, Clock::time_point deadline) {
  int ended = request == MPI_REQUEST_NULL ? 1 : 0;
  while (ended == 0 && Clock::now() < deadline) {
    if (MPI_Test(&request, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

struct Posted final : server::Transfer {
  using Transfer::Transfer;

  MPI_Request request = MPI_REQUEST_NULL;
};

}  // namespace

MpiLink::MpiLink(MPI_Comm members, std::vector<Peer> peers, std::chrono::milliseconds timeout)
    : Link(
          [&] {
            int rank = 0;
            MPI_Comm_rank(members, &rank);
            return rank;
          }(),
          std::move(peers),
          timeout),
      requests_(duplicate(members, timeout)),
      expected_(duplicate(members, timeout)) {
}

// One that failed is not freed: a message on it may still come, and Open MPI 5.0.11 would look for it in vain.
MpiLink::~MpiLink() {
  const WatchedThread watch = watched(timeout());
  const auto deadline = Clock::now() + kLongestDrain;
  for (Told& told : told_) {
    bring_to_end(told.request, deadline);
  }
  if (whole_) {
    MPI_Comm_free(&requests_);
    MPI_Comm_free(&expected_);
  }
}

MPI_Comm MpiLink::comm_of(int tag) const {
  return tag <= server::kGoodbyeTag ? requests_ : expected_;
}

// A length beyond that of an int is MPI_UNDEFINED, which is negative.
std::string MpiLink::read(MPI_Message& message, const MPI_Status& status) const {
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  if (size < 0 || static_cast<std::uint64_t>(size) > kMostMessage) {
    const Peer& sender = peer(status.MPI_SOURCE);
    const std::string length = size < 0 ? "more than 2147483647" : std::to_string(size);
    throw PeerError(
        server::name_of(sender) + " sent a message of kind " + std::to_string(status.MPI_TAG) + " and " + length +
            " bytes; permitted: " + std::to_string(kMostMessage) + " bytes",
        {sender});
  }
  std::string bytes(static_cast<std::size_t>(size), '\0');
  check_mpi(MPI_Mrecv(bytes.data(), size, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
  return bytes;
}

void MpiLink::tell(int rank, int tag, std::string message) {
  const WatchedThread watch = watched(timeout());
  const std::lock_guard lock(mutex_);
  std::erase_if(told_, [](Told& told) { return has_ended(told.request); });
  Told& told = told_.emplace_back(Told{.message = std::move(message)});
  const int size = static_cast<int>(told.message.size());
  check_mpi(MPI_Isend(told.message.data(), size, MPI_BYTE, rank, tag, comm_of(tag), &told.request), "MPI_Isend");
}

std::shared_ptr<server::Transfer> MpiLink::send(int rank, int tag, server::Bytes bytes) {
  const WatchedThread watch = watched(timeout());
  auto transfer = std::make_shared<Posted>(rank);
  const int size = static_cast<int>(bytes.size());
  check_mpi(MPI_Isend(bytes.data(), size, MPI_BYTE, rank, tag, comm_of(tag), &transfer->request), "MPI_Isend");
  return transfer;
}

std::shared_ptr<server::Transfer> MpiLink::receive(int rank, int tag, server::Space place) {
  const WatchedThread watch = watched(timeout());
  auto transfer = std::make_shared<Posted>(rank);
  const int size = static_cast<int>(place.size());
  check_mpi(MPI_Irecv(place.data(), size, MPI_BYTE, rank, tag, comm_of(tag), &transfer->request), "MPI_Irecv");
  return transfer;
}

bool MpiLink::ended(server::Transfer& transfer) {
  const WatchedThread watch = watched(timeout());
  return has_ended(static_cast<Posted&>(transfer).request);
}

std::optional<server::Request> MpiLink::take_request() {
  const WatchedThread watch = watched(timeout());
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check_mpi(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, requests_, &found, &message, &status), "MPI_Improbe");
  if (found == 0) {
    return std::nullopt;
  }
  return server::Request{.rank = status.MPI_SOURCE, .tag = status.MPI_TAG, .message = read(message, status)};
}

std::optional<std::string> MpiLink::take_message(int rank) {
  const WatchedThread watch = watched(timeout());
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check_mpi(MPI_Improbe(rank, server::kAssignmentTag, expected_, &found, &message, &status), "MPI_Improbe");
  return found != 0 ? std::optional(read(message, status)) : std::nullopt;
}

void MpiLink::fail(const Failure& /*why*/) {
  const WatchedThread watch = watched(timeout());
  whole_ = false;
  revoke(requests_);
  revoke(expected_);
}

void MpiLink::drain(server::Transfers& transfers) {
  const WatchedThread watch = watched(timeout());
  const auto deadline = Clock::now() + kLongestDrain;
  for (const auto& transfer : transfers) {
    bring_to_end(static_cast<Posted&>(*transfer).request, deadline);
  }
  transfers.clear();
}

void MpiLink::idle(std::uint64_t /*events*/, Clock::duration waited, bool serves) {
  constexpr Backoff kAsking;
  constexpr Backoff kServing{.max_sleep = std::chrono::microseconds(2000)};
  std::this_thread::sleep_for((serves ? kServing : kAsking).sleep_after(waited));
}

// An assignment may take three times as long, since the coordinator itself looks after those whom others wait for.
bool MpiLink::is_late(int /*rank*/, Clock::duration waited, bool for_message) {
  return waited > (for_message ? 3 : 1) * timeout();
}

}  // namespace isochron
