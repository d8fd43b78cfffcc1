#include "isochron/comm/newcomer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "isochron/comm/backoff.h"
#include "isochron/comm/mpi_call.h"
#include "isochron/comm/mpi_session.h"

namespace isochron {
namespace {

using Clock = std::chrono::steady_clock;

// From the start of its process to its introduction: it opens its data and makes its model.
constexpr auto kTimeToStart = std::chrono::minutes(10);

// What a process gets that was started just before the job ended.
constexpr auto kTimeToArrive = std::chrono::seconds(10);

// Both sides have this long once each knows of the other: from its start to a communicator of the first worker and the
// newcomer, and from "come", when all are between two steps, to one of everybody.
constexpr auto kTimeToMerge = std::chrono::seconds(30);

constexpr std::int64_t kMostText = std::int64_t{256} << 20;  // bytes of a message; no length is believed beyond it

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
  if (size < 0 || size > kMostText) {
    throw PeerError(
        "a newcomer's message has " + std::to_string(size) + " bytes; permitted: up to " + std::to_string(kMostText),
        {});
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

// Ends the process if it lives longer than `patience`. Where merging fails for the others, they go on by themselves;
// MPI does not tell the newcomer, whose call never returns.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds patience)
      : thread_([this, patience](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          over_.wait_for(lock, stop, patience, [] { return false; });
          if (!stop.stop_requested()) {
            std::cerr << "isochron: the job goes on without this worker, which was about to join it, or has ended\n";
            std::_Exit(EXIT_FAILURE);
          }
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any over_;
  std::jthread thread_;
};

MPI_Comm spawn(const std::vector<std::string>& command, const std::string& host) {
  std::vector<std::string> copies(command.begin() + 1, command.end());
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
      MPI_Comm_spawn(command.front().c_str(), arguments.data(), 1, info, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE);
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

struct Newcomer::Arrival {
  MPI_Comm bridge = MPI_COMM_NULL;  // this process and the newcomer
  std::string introduction;
  std::string failure;
  std::atomic<bool> stop = false;
  std::atomic<bool> given_up = false;  // whoever waits for it tells it so, should it come after all
  std::atomic<Status> status = Status::kComing;
};

Newcomer::Newcomer(std::vector<std::string> command, std::string host, std::function<bool()> gone)
    : gone_(std::move(gone)), due_(Clock::now() + kTimeToStart), arrival_(std::make_shared<Arrival>()) {
  MpiSession::end_in_time();
  std::packaged_task<void()> task(
      [arrival = arrival_, command = std::move(command), host = std::move(host)] { await(*arrival, command, host); });
  ended_ = task.get_future();
  std::thread(std::move(task)).detach();
}

Newcomer::~Newcomer() {
  arrival_->stop = true;
  if (!given_up_.empty()) {
    return;
  }
  if (ended_.wait_for(kTimeToArrive) != std::future_status::ready || arrival_->bridge == MPI_COMM_NULL) {
    return;
  }
  if (!answered_) {
    try {
      answer(kEnded);
    } catch (const PeerError& gone) {
      arrival_->failure = gone.what();  // nobody to tell
    }
  }
  MPI_Comm_free(&arrival_->bridge);
}

Newcomer::Status Newcomer::status() {
  if (given_up_.empty() && arrival_->status == Status::kComing) {
    if (gone_ && gone_()) {
      give_up("its process ended while it started");
    } else if (Clock::now() > due_) {
      give_up("it did not come within " + std::to_string(kTimeToStart.count()) + " minutes");
    }
  }
  return given_up_.empty() ? arrival_->status.load() : Status::kFailed;
}

void Newcomer::give_up(const std::string& reason) {
  given_up_ = reason;
  arrival_->given_up = true;
  arrival_->stop = true;
}

const std::string& Newcomer::introduction() const {
  return arrival_->introduction;
}
const std::string& Newcomer::failure() const {
  return given_up_.empty() ? arrival_->failure : given_up_;
}

void Newcomer::await(Arrival& arrival, const std::vector<std::string>& command, const std::string& host) {
  try {
    arrival.bridge = merged(spawn(command, host), /*is_new=*/false);
    if (receive(arrival.bridge, kNew, kIntroductionTag, arrival.introduction, arrival.stop)) {
      arrival.status = Status::kReady;
    }
    if (arrival.given_up) {
      send(arrival.bridge, kNew, kAnswerTag, kRefused + "it came too late");
    }
  } catch (const PeerError& error) {
    arrival.failure = error.what();
    arrival.status = Status::kFailed;
  }
}

void Newcomer::answer(const std::string& text) {
  answered_ = true;
  send(arrival_->bridge, kNew, kAnswerTag, text);
}

void Newcomer::refuse(const std::string& reason) {
  answer(kRefused + reason);
}

MPI_Comm Newcomer::merge(MPI_Comm world) {
  answer(kCome);
  return merge_over(world, arrival_->bridge, kNew, /*is_new=*/false);
}

std::unique_ptr<Admission> Admission::take() {
  static bool taken = false;
  MPI_Comm parent = MPI_COMM_NULL;
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL || std::exchange(taken, true)) {
    return nullptr;
  }
  MpiSession::end_in_time();
  MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
  // Whoever has started us may have ended since.
  const Deadline deadline(kTimeToMerge);
  return std::unique_ptr<Admission>(new Admission(merged(parent, /*is_new=*/true)));
}

Admission::~Admission() {
  MPI_Comm_free(&bridge_);
}

MPI_Comm Admission::enter(const std::string& introduction, std::chrono::milliseconds timeout) {
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
  const Deadline deadline(std::min<std::chrono::milliseconds>(timeout, kTimeToMerge));
  return merge_over(MPI_COMM_SELF, bridge_, kFirst, /*is_new=*/true);
}

}  // namespace isochron
