#include "isochron/comm/watchdog.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <future>
#include <iostream>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <execinfo.h>
#include <unistd.h>

namespace isochron {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 100ms;
constexpr auto kTimeToShow = 1000ms;  // its calls
constexpr int kMostCalls = 64;

// One that nobody else uses: LibTorch and MPI take none of the real-time signals.
int show_signal() {
  return SIGRTMIN + 7;
}

std::atomic<bool> shown = false;

void show_calls(int /*signal*/) {
  std::array<void*, kMostCalls> calls{};
  const int count = backtrace(calls.data(), kMostCalls);
  backtrace_symbols_fd(calls.data(), count, STDERR_FILENO);
  shown = true;
}

}  // namespace

class Watchdog {
 public:
  // It outlives every thread that may be watched.
  static Watchdog& instance() {
    static auto* const dog = new Watchdog;
    return *dog;
  }

  void add(WatchedThread* thread) {
    const std::lock_guard lock(mutex_);
    threads_.push_back(thread);
  }
  void remove(WatchedThread* thread) {
    const std::lock_guard lock(mutex_);
    threads_.remove(thread);
  }
  void add(LastWords* words) {
    const std::lock_guard lock(mutex_);
    words_.push_back(words);
  }
  void remove(LastWords* words) {
    const std::lock_guard lock(mutex_);
    words_.remove(words);
  }

 private:
  Watchdog() {
    std::array<void*, 1> first{};
    backtrace(first.data(), 1);  // loads what it needs, which a signal handler may not
    struct sigaction action{};
    action.sa_handler = show_calls;
    sigemptyset(&action.sa_mask);
    sigaction(show_signal(), &action, nullptr);
    std::thread([this] { run(); }).detach();
  }

  [[noreturn]] void run() {
    pthread_setname_np(pthread_self(), "isochron-watch");
    while (true) {
      std::this_thread::sleep_for(kTick);
      std::unique_lock lock(mutex_);
      const auto stuck = std::ranges::find_if(threads_, [](WatchedThread* thread) { return is_stuck(*thread); });
      if (stuck != threads_.end()) {
        show(**stuck);
        if (const std::chrono::milliseconds farewell = (*stuck)->farewell_; farewell > 0ms) {
          lock.unlock();  // others may still come and go
          kill(getpid(), SIGTERM);
          std::this_thread::sleep_for(farewell);
        } else {
          say_last_words();
        }
        raise(SIGKILL);
        std::abort();
      }
    }
  }

  static bool is_stuck(WatchedThread& thread) {
    const std::uint64_t beats = thread.beats_;
    thread.silent_ = beats == thread.seen_ ? thread.silent_ + kTick : 0ms;
    thread.seen_ = beats;
    return thread.silent_ >= thread.limit_.load();
  }

  static void show(const WatchedThread& thread) {
    std::cerr << "isochron: process " + std::to_string(getpid()) + ": " + thread.task_ + " has made no progress for " +
                     std::to_string(thread.silent_.count() / 1000) + " s; this worker leaves the job. It is at:\n";
    pthread_kill(thread.thread_, show_signal());
    for (auto waited = 0ms; !shown && waited < kTimeToShow; waited += kTick) {
      std::this_thread::sleep_for(kTick);
    }
  }

  // Under the lock, so that none of them goes.
  void say_last_words() const {
    for (const LastWords* const words : words_) {
      try {
        std::packaged_task<void()> saying(words->say_);
        const std::future<void> said = saying.get_future();
        std::thread(std::move(saying)).detach();
        // In ticks, since only time counts in which this process runs.
        for (auto waited = 0ms; waited < words->time_ && said.wait_for(kTick) != std::future_status::ready;) {
          waited += kTick;
        }
      } catch (const std::system_error& error) {  // there is no thread to be had
        std::cerr << std::string("isochron: nothing is done before this worker leaves: ") + error.what() + "\n";
      }
    }
  }

  std::mutex mutex_;
  std::list<WatchedThread*> threads_;
  std::list<LastWords*> words_;
};

LastWords::LastWords(std::function<void()> say, std::chrono::milliseconds time) : say_(std::move(say)), time_(time) {
  Watchdog::instance().add(this);
}

LastWords::~LastWords() {
  Watchdog::instance().remove(this);
}

WatchedThread::WatchedThread(std::string task, std::chrono::milliseconds limit, std::chrono::milliseconds farewell)
    : task_(std::move(task)), farewell_(farewell), limit_(limit) {
  Watchdog::instance().add(this);
}

WatchedThread::~WatchedThread() {
  Watchdog::instance().remove(this);
}

}  // namespace isochron
