// Watches threads that call MPI: such a call may wait for ever inside MPI, for a lock or for a peer that MPI takes to
// be alive (Open MPI 5.0.11: a lock of btl_tcp under RollCall::ask, votes without those who left unannounced), and
// then no time-out of ours is looked at any more.
//
// A thread that makes no progress for longer than it may is shown with its calls on standard error, and the process is
// killed: that is a loss which MPI tells the others at once, and from which they, or the launcher, go on. A worker that
// has no others can be asked to end by SIGTERM first: its other threads go on, and save what there is after the step.
// Otherwise the last words are called, since other threads may wait for the stuck one for ever.
// Time counts only while this process runs, so that one that was stopped and goes on is not taken for stuck.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include <pthread.h>

namespace isochron {

// For whoever saves something before the process is killed.
inline constexpr std::chrono::milliseconds kTimeToSave{60'000};

// What is done in a thread of its own before the process is killed, within that time. It calls no MPI. Thread-safe.
class LastWords {
 public:
  explicit LastWords(std::function<void()> say, std::chrono::milliseconds time = kTimeToSave);
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
  // Does not return once they are being said.
  ~LastWords();

 private:
  friend class Watchdog;

  const std::function<void()> say_;
  const std::chrono::milliseconds time_;
};

// It watches the thread that makes it, as long as it lives. Thread-safe.
class WatchedThread {
 public:
  // What the thread does, for people; how long it may take from beat to beat; and what the process then gets to end by
  // itself, 0 if it is to be killed at once.
  WatchedThread(
      std::string task,
      std::chrono::milliseconds limit,
      std::chrono::milliseconds farewell = std::chrono::milliseconds(0));
  WatchedThread(const WatchedThread&) = delete;
  WatchedThread& operator=(const WatchedThread&) = delete;
  ~WatchedThread();

  void beat() { ++beats_; }
  void set_limit(std::chrono::milliseconds limit) { limit_ = limit; }

 private:
  friend class Watchdog;

  const std::string task_;
  const std::chrono::milliseconds farewell_;
  const pthread_t thread_ = pthread_self();
  std::atomic<std::chrono::milliseconds> limit_;
  std::atomic<std::uint64_t> beats_ = 0;
  // The watchdog's own.
  std::uint64_t seen_ = 0;
  std::chrono::milliseconds silent_{0};
};

}  // namespace isochron
