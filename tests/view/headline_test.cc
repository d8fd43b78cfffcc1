#include "isochron/view/headline.h"

#include <limits>

#include "tests/view/records.h"
#include <gtest/gtest.h>

namespace isochron::view {
namespace {

RunView view_of_policy(const std::string& policy, double seconds) {
  RunHeader header = header_of({"a", "b"});
  header.policy = policy;
  RunView view(header);
  view.add(step_of(0, 0.0, {60, 40}, {seconds, seconds}));
  return view;
}

TEST(HeadlineTest, ComparesIsochronWithUniform) {
  const RunView uniform = view_of_policy("uniform", 0.5);
  const RunView other = view_of_policy("dlb", 0.05);
  const RunView isochron = view_of_policy("isochron:price=0", 0.1);
  EXPECT_EQ(
      headline({{.name = "u", .view = &uniform}, {.name = "d", .view = &other}, {.name = "i", .view = &isochron}}),
      "i does 5.00 times the samples per second of u on pair (2 workers): 1,000.0 instead of 200.0 over the whole "
      "run.");
  EXPECT_EQ(
      headline({{.name = "uniform", .view = &uniform}, {.name = "isochron", .view = &isochron}}),
      "isochron does 5.00 times the samples per second of equal batches on pair (2 workers): 1,000.0 instead of 200.0 "
      "over the whole run.");
}

TEST(HeadlineTest, ComparesTheFastestWithTheSlowest) {
  const RunView slow = view_of_policy("dlb", 0.5);
  const RunView fast = view_of_policy("lbb", 0.25);
  EXPECT_EQ(
      headline({{.name = "slow", .view = &slow}, {.name = "fast", .view = &fast}}),
      "fast does 2.00 times the samples per second of slow on pair (2 workers): 400.0 instead of 200.0 over the whole "
      "run.");
  const RunView uniform = view_of_policy("uniform", 0.1);
  EXPECT_EQ(
      headline({{.name = "slow", .view = &slow}, {.name = "uniform", .view = &uniform}}),
      "equal batches do 5.00 times the samples per second of slow on pair (2 workers): 1,000.0 instead of 200.0 over "
      "the "
      "whole run.");
}

TEST(HeadlineTest, DescribesOneRun) {
  const RunView view = view_of(10);
  EXPECT_EQ(
      headline({{.name = "x", .view = &view}}),
      "x does 100.0 samples per second on pair (2 workers) over 10 steps; on average a worker waits 25 % of "
      "a step for the slowest one; in its last steps about 1.2 times as fast as with equal shares.");  // 1.25 s for 50
  const RunView uniform = view_of_policy("uniform", 0.5);
  EXPECT_EQ(
      headline({{.name = "uniform", .view = &uniform}}),
      "equal batches do 200.0 samples per second on pair (2 workers) over 1 steps; on average a worker waits 0 % of a "
      "step for the slowest one.");
  const RunView empty(header_of({"a"}));
  EXPECT_EQ(
      headline({{.name = "x", .view = &empty}}), "x does unknown samples per second on pair (1 worker) over 0 steps.");
}

TEST(HeadlineTest, SaysWhatEqualSharesLeaveOut) {
  RunView view(header_of({"fast", "slow"}));
  for (std::int64_t step = 0; step < 10; ++step) {
    view.add(step_of(step, static_cast<double>(step), {50, 50}, {0.25, 1.0}));
  }
  // 80 and 20 samples: 0.4 s.
  EXPECT_EQ(
      headline({{.name = "x", .view = &view}}),
      "x does 100.0 samples per second on pair (2 workers) over 10 steps; on average a worker waits 38 % of a step for "
      "the slowest one; shares that fit the workers would make it about 2.5 times as fast.");
  view.add(EventRecord{.step = 10, .seconds = 10.0, .event = "forecast", .words = "You would gain a lot."});
  EXPECT_EQ(headline({{.name = "x", .view = &view}}), "You would gain a lot.");
}

TEST(HeadlineTest, GroupsDigits) {
  EXPECT_EQ(grouped(0.0, 0), "0");
  EXPECT_EQ(grouped(999.0, 0), "999");
  EXPECT_EQ(grouped(1000.0, 0), "1,000");
  EXPECT_EQ(grouped(-1234567.89, 1), "-1,234,567.9");
  EXPECT_EQ(grouped(std::numeric_limits<double>::quiet_NaN(), 2), "unknown");
}

}  // namespace
}  // namespace isochron::view
