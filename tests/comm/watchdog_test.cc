#include "isochron/comm/watchdog.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace isochron {
namespace {

using namespace std::chrono_literals;

// In a process of its own, since the watchdog ends it.
int status_of(const std::function<void()>& action) {
  const pid_t child = fork();
  if (child == 0) {
    action();
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(WatchdogTest, EndsAProcessWhoseThreadMakesNoProgressAndShowsWhereItIs) {
  testing::internal::CaptureStderr();
  const int status = status_of([] {
    const WatchedThread watched("a thread that waits", 500ms);
    std::this_thread::sleep_for(20s);
  });
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGKILL) << "MPI tells the others of it";
  EXPECT_NE(said.find("a thread that waits has made no progress for 0 s"), std::string::npos) << said;
  EXPECT_NE(said.find("nanosleep"), std::string::npos) << said;
}

// Others of its threads go on: a job that is alone saves its state and ends.
TEST(WatchdogTest, LetsAProcessEndByItselfThatMay) {
  testing::internal::CaptureStderr();
  const auto stuck = [](std::chrono::milliseconds farewell) {
    std::thread([farewell] {
      const WatchedThread watched("a thread that waits", 500ms, farewell);
      std::this_thread::sleep_for(20s);
    }).detach();
  };
  EXPECT_EQ(
      status_of([stuck] {
        static volatile std::sig_atomic_t asked = 0;
        std::signal(SIGTERM, [](int) { asked = 1; });
        stuck(10s);
        while (asked == 0) {
          std::this_thread::sleep_for(10ms);
        }
        const WatchedThread meanwhile("what it does to save", 10s);  // nothing keeps it from that
        std::_Exit(7);
      }),
      7 << 8);
  const int killed = status_of([stuck] {
    std::signal(SIGTERM, SIG_IGN);
    stuck(500ms);
    std::this_thread::sleep_for(20s);
  });
  EXPECT_TRUE(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL) << "it did not end in its time";
  testing::internal::GetCapturedStderr();
}

// Whoever may wait for the stuck thread cannot save; a thread of its own can. While it does, nobody lets go of what is
// saved.
TEST(WatchdogTest, CallsTheLastWordsBeforeItKillsAndDoesNotWaitForThemForEver) {
  testing::internal::CaptureStderr();
  const int status = status_of([] {
    auto first = std::make_unique<LastWords>([] {
      std::this_thread::sleep_for(500ms);
      std::cerr << "the first ones\n";
    });
    const LastWords endless([] { std::this_thread::sleep_for(1h); }, 500ms);
    const LastWords failing([] { throw std::runtime_error("no room"); });
    const LastWords last([] { std::cerr << "the last ones\n"; });
    (void)std::make_unique<LastWords>([] { std::cerr << "of a job that is over\n"; });
    const WatchedThread watched("a thread that waits", 500ms);
    std::this_thread::sleep_for(900ms);
    first.reset();
    std::cerr << "it went on\n";
    std::this_thread::sleep_for(20s);
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_NE(said.find("the first ones\nthe last ones\n"), std::string::npos) << said;
  EXPECT_EQ(said.find("of a job that is over"), std::string::npos) << said;
  EXPECT_EQ(said.find("it went on"), std::string::npos) << said;
}

TEST(WatchdogTest, LeavesAThreadAloneThatMakesProgressOrIsDone) {
  EXPECT_EQ(
      status_of([] {
        {
          WatchedThread watched("a thread that works", 500ms);
          for (int i = 0; i < 30; ++i) {
            std::this_thread::sleep_for(50ms);
            watched.beat();
          }
        }
        std::this_thread::sleep_for(1s);
      }),
      0);
}

// A duty cycle stops workers, and so do people.
TEST(WatchdogTest, DoesNotCountTheTimeInWhichTheProcessWasStopped) {
  const pid_t child = fork();
  if (child == 0) {
    const WatchedThread watched("a thread that waits", 1500ms);
    std::this_thread::sleep_for(500ms);
    raise(SIGSTOP);
    std::this_thread::sleep_for(500ms);
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(status));
  std::this_thread::sleep_for(2500ms);
  kill(child, SIGCONT);
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace isochron
