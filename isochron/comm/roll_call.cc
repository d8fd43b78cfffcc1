#include "isochron/comm/roll_call.h"

#include <algorithm>
#include <array>
#include <thread>

#include <unistd.h>

#include "isochron/comm/mpi_call.h"

namespace isochron {
namespace {

constexpr int kQuestion = 1;
constexpr int kAnswer = 2;

std::vector<Peer> gather_peers(MPI_Comm comm, int size) {
  struct Address {
    std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
    int process = 0;
  };
  Address mine{.process = getpid()};
  int length = 0;
  MPI_Get_processor_name(mine.host.data(), &length);
  std::vector<Address> addresses(static_cast<std::size_t>(size));
  check_mpi(
      MPI_Allgather(&mine, sizeof mine, MPI_BYTE, addresses.data(), sizeof mine, MPI_BYTE, comm),
      "MPI_Allgather of host names");
  std::vector<Peer> peers;
  peers.reserve(addresses.size());
  for (const Address& address : addresses) {
    peers.push_back({.rank = static_cast<int>(peers.size()), .host = address.host.data(), .process = address.process});
  }
  return peers;
}

// Small enough to leave at once; a peer that is gone is simply silent, so the outcome does not matter.
void send_and_forget(const std::int64_t* value, int count, int rank, int tag, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(value, count, MPI_INT64_T, rank, tag, comm, &request) != MPI_SUCCESS) {
    return;
  }
  int sent = 0;
  if (MPI_Test(&request, &sent, MPI_STATUS_IGNORE) == MPI_SUCCESS && sent == 0) {
    MPI_Request_free(&request);
  }
}

}  // namespace

RollCall::RollCall(MPI_Comm parent) {
  check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  int size = 0;
  MPI_Comm_size(comm_, &size);
  MPI_Comm_rank(comm_, &rank_);
  peers_ = gather_peers(comm_, size);
  post_receive();
}

RollCall::~RollCall() {
  if (question_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&question_);
    MPI_Wait(&question_, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&comm_);
}

void RollCall::post_receive() {
  if (MPI_Irecv(nullptr, 0, MPI_INT64_T, MPI_ANY_SOURCE, kQuestion, comm_, &question_) != MPI_SUCCESS) {
    question_ = MPI_REQUEST_NULL;
  }
}

void RollCall::serve(std::int64_t started) {
  while (true) {
    if (question_ == MPI_REQUEST_NULL) {
      post_receive();  // a dead peer breaks a receive from anybody
    }
    int asked = 0;
    MPI_Status status;
    if (MPI_Test(&question_, &asked, &status) != MPI_SUCCESS || asked == 0) {
      return;
    }
    answer_ = started;
    send_and_forget(&answer_, 1, status.MPI_SOURCE, kAnswer, comm_);
    post_receive();
  }
}

std::vector<RollCall::Missing> RollCall::ask(std::int64_t started, std::chrono::milliseconds patience) {
  std::vector<std::optional<std::int64_t>> answers(peers_.size());
  answers[static_cast<std::size_t>(rank_)] = started;
  for (const Peer& peer : peers_) {
    if (peer.rank != rank_) {
      send_and_forget(nullptr, 0, peer.rank, kQuestion, comm_);
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto silent = [](const std::optional<std::int64_t>& answer) { return !answer; };
  while (std::ranges::any_of(answers, silent) && std::chrono::steady_clock::now() < deadline) {
    serve(started);
    for (const Peer& peer : peers_) {
      auto& answer = answers[static_cast<std::size_t>(peer.rank)];
      int arrived = 0;
      std::int64_t count = 0;
      if (!answer && MPI_Iprobe(peer.rank, kAnswer, comm_, &arrived, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
          arrived != 0 &&
          MPI_Recv(&count, 1, MPI_INT64_T, peer.rank, kAnswer, comm_, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
        answer = count;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<Missing> missing;
  for (const Peer& peer : peers_) {
    const auto& answer = answers[static_cast<std::size_t>(peer.rank)];
    if (!answer || *answer < started) {
      missing.push_back({.peer = peer, .started = answer});
    }
  }
  return missing;
}

bool is_outvoted(const std::vector<RollCall::Missing>& missing, const std::vector<int>& dead, int size) {
  std::vector<bool> silent(static_cast<std::size_t>(size));
  for (const auto& [peer, started] : missing) {
    silent[static_cast<std::size_t>(peer.rank)] = !started;
  }
  int majority = 0;  // of those who answer
  bool first_is_silent = false;
  for (int rank = size - 1; rank >= 0; --rank) {
    if (std::ranges::find(dead, rank) == dead.end()) {
      first_is_silent = silent[static_cast<std::size_t>(rank)];
      majority += first_is_silent ? -1 : 1;
    }
  }
  return majority < 0 || (majority == 0 && first_is_silent);
}

}  // namespace isochron
