// How a process ends whose MPI_Finalize, which a destructor calls after main, does not.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "isochron/comm/mpi_session.h"

namespace isochron {
namespace {

using namespace std::chrono_literals;

constexpr int kStatus = 3;

// What waitpid() says of a process whose main ends with kStatus; `finalize` is in the place of MPI's. -1: it hangs.
int status_of_one_that_ends_by(void (*finalize)()) {
  const pid_t child = fork();
  if (child == 0) {
    std::atexit(finalize);
    MpiSession::end_in_time();
    std::exit(kStatus);
  }
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  int status = -1;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(10ms);
  }
  return status;
}

TEST(MpiEndTest, AProcessWhoseMpiDoesNotEndEndsAsMainDid) {
  const int status = status_of_one_that_ends_by([] {
    while (true) {
      std::this_thread::sleep_for(1s);
    }
  });
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), kStatus);
}

TEST(MpiEndTest, AProcessWhoseMpiCrashesAtTheEndEndsAsMainDid) {
  const int status = status_of_one_that_ends_by([] { std::abort(); });
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), kStatus);
}

}  // namespace
}  // namespace isochron
