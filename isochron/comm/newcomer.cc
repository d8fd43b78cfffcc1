#include "isochron/comm/newcomer.h"

#include <algorithm>
#include <utility>

#include "isochron/comm/backoff.h"
#include "isochron/comm/mpi_call.h"

namespace isochron {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFirst = 0;  // on the bridge
constexpr int kNew = 1;
constexpr int kIntroductionTag = 1;
constexpr int kAnswerTag = 2;
constexpr int kAdmissionTag = 7;

const std::string kCome = "come";
const std::string kEnded = "ended";
const std::string kRefused = "refused: ";

// Sleeping, where MPI_Wait would burn a core. False if told to stop.
bool wait_for(MPI_Request& request, const std::atomic<bool>& stop) {
  const Backoff backoff;
  const auto start = Clock::now();
  int ended = 0;
  while (true) {
    check_mpi(MPI_Test(&request, &ended, MPI_STATUS_IGNORE), "MPI_Test of a newcomer's message");
    if (ended != 0) {
      return true;
    }
    if (stop) {
      MPI_Cancel(&request);
      MPI_Request_free(&request);
      return false;
    }
    std::this_thread::sleep_for(backoff.sleep_after(Clock::now() - start));
  }
}

bool receive(MPI_Comm comm, int from, int tag, std::string& text, const std::atomic<bool>& stop) {
  std::int64_t size = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(&size, 1, MPI_INT64_T, from, tag, comm, &request), "MPI_Irecv of a newcomer's message");
  if (!wait_for(request, stop)) {
    return false;
  }
  text.resize(static_cast<std::size_t>(size));
  if (size > 0) {
    check_mpi(
        MPI_Irecv(text.data(), static_cast<int>(size), MPI_BYTE, from, tag, comm, &request),
        "MPI_Irecv of a newcomer's message");
    return wait_for(request, stop);
  }
  return true;
}

void send(MPI_Comm comm, int to, int tag, const std::string& text) {
  const auto size = static_cast<std::int64_t>(text.size());
  check_mpi(MPI_Send(&size, 1, MPI_INT64_T, to, tag, comm), "MPI_Send to a newcomer");
  if (size > 0) {
    check_mpi(MPI_Send(text.data(), static_cast<int>(size), MPI_BYTE, to, tag, comm), "MPI_Send to a newcomer");
  }
}

// Both sides merge to a communicator in which the old ones come first. Frees `inter`, without which MPI waits for the
// other side when it ends.
MPI_Comm merged(MPI_Comm inter, bool is_new) {
  MPI_Comm comm = MPI_COMM_NULL;
  const int code = MPI_Intercomm_merge(inter, is_new ? 1 : 0, &comm);
  MPI_Comm_free(&inter);
  check_mpi(code, "MPI_Intercomm_merge with a newcomer");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

MPI_Comm merge_over(MPI_Comm local, MPI_Comm bridge, int remote, bool is_new) {
  MPI_Comm inter = MPI_COMM_NULL;
  check_mpi(
      MPI_Intercomm_create(local, 0, bridge, remote, kAdmissionTag, &inter), "MPI_Intercomm_create with a newcomer");
  MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
  return merged(inter, is_new);
}

MPI_Comm spawn(const std::vector<std::string>& words, const std::string& host) {
  std::vector<std::string> copies(words.begin() + 1, words.end());
  std::vector<char*> arguments;
  arguments.reserve(copies.size() + 1);
  for (std::string& word : copies) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  MPI_Info info = MPI_INFO_NULL;
  if (!host.empty()) {
    MPI_Info_create(&info);
    MPI_Info_set(info, "add-host", host.c_str());
    MPI_Info_set(info, "host", host.c_str());
  }
  MPI_Comm inter = MPI_COMM_NULL;
  const int code =
      MPI_Comm_spawn(words.front().c_str(), arguments.data(), 1, info, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE);
  if (info != MPI_INFO_NULL) {
    MPI_Info_free(&info);
  }
  check_mpi(code, "MPI_Comm_spawn");
  MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
  return inter;
}

}  // namespace

MPI_Comm merge_newcomer(MPI_Comm world) {
  return merge_over(world, MPI_COMM_NULL, kNew, /*is_new=*/false);
}

Newcomer::Newcomer(std::vector<std::string> words, std::string host)
    : thread_([this, words = std::move(words), host = std::move(host)] { run(words, host); }) {
}

Newcomer::~Newcomer() {
  stop_ = true;
  thread_.join();
  if (bridge_ != MPI_COMM_NULL) {
    if (!answered_) {
      try {
        answer(kEnded);
      } catch (const PeerError& gone) {
        failure_ = gone.what();  // nobody to tell
      }
    }
    MPI_Comm_free(&bridge_);
  }
}

void Newcomer::run(const std::vector<std::string>& words, const std::string& host) {
  try {
    bridge_ = merged(spawn(words, host), /*is_new=*/false);
    if (receive(bridge_, kNew, kIntroductionTag, introduction_, stop_)) {
      status_ = Status::kReady;
    }
  } catch (const PeerError& error) {
    failure_ = error.what();
    status_ = Status::kFailed;
  }
}

void Newcomer::answer(const std::string& words) {
  answered_ = true;
  send(bridge_, kNew, kAnswerTag, words);
}

void Newcomer::refuse(const std::string& reason) {
  answer(kRefused + reason);
}

MPI_Comm Newcomer::merge(MPI_Comm world) {
  answer(kCome);
  return merge_over(world, bridge_, kNew, /*is_new=*/false);
}

std::unique_ptr<Admission> Admission::take() {
  static bool taken = false;
  MPI_Comm parent = MPI_COMM_NULL;
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL || std::exchange(taken, true)) {
    return nullptr;
  }
  MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
  return std::unique_ptr<Admission>(new Admission(merged(parent, /*is_new=*/true)));
}

Admission::~Admission() {
  MPI_Comm_free(&bridge_);
}

MPI_Comm Admission::enter(const std::string& introduction) {
  const std::atomic<bool> never = false;
  send(bridge_, kFirst, kIntroductionTag, introduction);
  std::string word;
  receive(bridge_, kFirst, kAnswerTag, word, never);
  if (word == kEnded) {
    return MPI_COMM_NULL;
  }
  if (word != kCome) {
    throw Error("the job does not take this worker: " + word.substr(std::min(kRefused.size(), word.size())));
  }
  return merge_over(MPI_COMM_SELF, bridge_, kFirst, /*is_new=*/true);
}

}  // namespace isochron
