#include "isochron/emulate/process.h"

#include <chrono>
#include <csignal>
#include <string>

#include "tests/emulate/await.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::emulate {
namespace {

using testing::EndsWith;

TEST(ProcessTest, SaysWhatACommandSaidAndHowItEnded) {
  const Outcome outcome = run({"sh", "-c", "echo one; echo two >&2; exit 3"});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_EQ(outcome.output, "one\ntwo\n");
  EXPECT_EQ(run({"sh", "-c", "kill -TERM $$"}).status, 128 + SIGTERM);
  EXPECT_EQ(run({"/no/such/program"}).status, kCannotStart);
}

// As an mpirun that hangs, with what it has started, whether or not that still has its output.
TEST(ProcessTest, EndsACommandThatDoesNotEndInItsTime) {
  for (const std::string end : {"wait", "exec >&- 2>&-; wait", "kill -STOP $$"}) {
    SCOPED_TRACE(end);
    const Outcome outcome = run({"sh", "-c", "sleep 100 & echo $!; " + end}, std::chrono::milliseconds(1000));
    EXPECT_EQ(outcome.status, kDidNotEnd);
    EXPECT_THAT(outcome.output, EndsWith("it has not ended within 1 s"));
    const pid_t started = std::stoi(outcome.output);
    EXPECT_TRUE(await([started] { return has_ended(started); }));
  }
}

}  // namespace
}  // namespace isochron::emulate
