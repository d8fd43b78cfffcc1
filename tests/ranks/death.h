// A rank that dies because the test wants it to; any other death fails the test (mpirun.sh).
#pragma once

#include <csignal>
#include <cstdlib>

#include <unistd.h>

namespace isochron::testing {

inline void expect_death() {
  if (const char* const mark = std::getenv("TEST_PREMATURE_EXIT_FILE")) {
    unlink(mark);
  }
}

inline void die_on_purpose() {
  expect_death();
  std::raise(SIGKILL);
}

}  // namespace isochron::testing
