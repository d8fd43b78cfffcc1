// How a process comes into a job that is running.
//
//   first worker                                   new process
//   MPI_Comm_spawn, beside the training      -->   starts, opens its data, makes its model
//   receives the introduction                <--   introduces itself: who it is and what it was told
//   "come" when all are between two steps    -->   both sides merge: World::admit() and Admission::enter()
//
// The others train on all the while; only the merging is collective.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

#include "isochron/core/peer_error.h"

namespace isochron {

// Collective over `world`, for all but its rank 0, which calls Newcomer::merge(): the world and the newcomer, who is
// its last rank. Throws PeerLostError.
MPI_Comm merge_newcomer(MPI_Comm world);

// The first worker's side.
class Newcomer {
 public:
  // Starts a process of this MPI job, on `host` unless that is empty. Returns at once. `gone` says whether the process
  // has ended, if anybody can tell: MPI does not while the process starts, and waits for it.
  explicit Newcomer(std::vector<std::string> command, std::string host = {}, std::function<bool()> gone = {});
  Newcomer(const Newcomer&) = delete;
  Newcomer& operator=(const Newcomer&) = delete;
  // Tells it that there is no job left to join, if nobody has told it anything yet. One that does not even come to be
  // told within some seconds is left to itself.
  ~Newcomer();

  enum class Status : std::uint8_t { kComing, kReady, kFailed };
  // One that has ended, or does not come within some minutes, has failed; MPI's wait for it is left behind.
  Status status();
  // Once it is ready.
  const std::string& introduction() const;
  // Once it has failed.
  const std::string& failure() const;

  // It is told why and ends.
  void refuse(const std::string& reason);
  // Collective with merge_newcomer() of the others and Admission::enter() of the newcomer.
  MPI_Comm merge(MPI_Comm world);

 private:
  // What the thread that waits for it works on; it may outlive this object.
  struct Arrival;
  static void await(Arrival& arrival, const std::vector<std::string>& command, const std::string& host);
  void answer(const std::string& text);

  void give_up(const std::string& reason);

  const std::function<bool()> gone_;
  const std::chrono::steady_clock::time_point due_;
  std::shared_ptr<Arrival> arrival_;
  std::future<void> ended_;
  bool answered_ = false;
  std::string given_up_;  // why; empty: it is not
};

// The new process's side.
class Admission {
 public:
  // Null unless this process was started by a Newcomer; once per process.
  static std::unique_ptr<Admission> take();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;
  ~Admission();

  // Blocks until the job is between two steps: a communicator of everybody. MPI_COMM_NULL if the job has ended
  // meanwhile. Throws Error with the reason if it does not want us, PeerLostError if it is gone. Ends the process if
  // the job goes on without it, having said that it may come: `timeout`, at most 30 s, is how long that may take.
  MPI_Comm enter(const std::string& introduction, std::chrono::milliseconds timeout);

 private:
  explicit Admission(MPI_Comm bridge) : bridge_(bridge) {}

  MPI_Comm bridge_;
};

}  // namespace isochron
