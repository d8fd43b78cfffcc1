#include "isochron/emulate/duty_cycle.h"

#include <chrono>

#include "tests/emulate/await.h"
#include "tests/emulate/spinner.h"
#include <gtest/gtest.h>

namespace isochron::emulate {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

class DutyCycleTest : public testing::Test {
 protected:
  [[nodiscard]] std::chrono::nanoseconds used() const { return process_.cpu_time().value(); }

  const Spinner spinner_;
  const WorkerProcess process_{{.process = spinner_.pid(), .group = spinner_.pid()}};
};

TEST_F(DutyCycleTest, KeepsAProcessToItsShare) {
  DutyCycle cycle({{.microseconds = 2'500, .period = 10'000}});
  cycle.watch(0, process_);
  const auto start = steady_clock::now();
  const std::chrono::nanoseconds before = used();
  ASSERT_TRUE(await([&] { return used() - before > 300ms; }));
  // A quarter of a core takes 1,200 ms for it, less the share that was not used up when it began and one late stop.
  EXPECT_GT(steady_clock::now() - start, 900ms);
}

TEST_F(DutyCycleTest, StopsAndContinuesOnDemand) {
  DutyCycle cycle({{.microseconds = 9'000, .period = 10'000}});
  cycle.watch(0, process_);
  cycle.limit(0, {.microseconds = 0, .period = 10'000});
  std::chrono::nanoseconds before(0);
  EXPECT_TRUE(await([&] {  // stopped, and nothing used for three periods
    before = used();
    std::this_thread::sleep_for(30ms);
    return process_state(spinner_.pid()) == "T" && used() == before;
  }));
  cycle.limit(0, {.microseconds = 9'000, .period = 10'000});
  EXPECT_TRUE(await([&] { return used() > before; }));
}

TEST_F(DutyCycleTest, LeavesNoProcessStopped) {
  {
    DutyCycle cycle({{.microseconds = 0, .period = 10'000}});
    cycle.watch(0, process_);
    ASSERT_TRUE(await([&] { return process_state(spinner_.pid()) == "T"; }));
  }
  EXPECT_EQ(process_state(spinner_.pid()), "R");
}

}  // namespace
}  // namespace isochron::emulate
