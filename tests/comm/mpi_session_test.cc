#include "isochron/comm/mpi_session.h"

#include <cerrno>
#include <csignal>

#include <gtest/gtest.h>
#include <unistd.h>

namespace isochron {
namespace {

// MPI writes to the socket of a worker that has just died: that must fail, and not end the writer (SIGPIPE). Whoever
// started the test may have seen to it already.
TEST(MpiSessionTest, AWriteToWhoIsGoneIsAnError) {
  std::signal(SIGPIPE, SIG_DFL);
  start_mpi();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  errno = 0;
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(ends[1]);
}

}  // namespace
}  // namespace isochron
