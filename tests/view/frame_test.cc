#include "isochron/view/frame.h"

#include <algorithm>
#include <string>

#include "tests/view/records.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::view {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::size_t width_of(const std::string& line) {
  return static_cast<std::size_t>(
      std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

RunView view_of_workers(std::size_t workers) {
  RunHeader header = header_of(std::vector<std::string>(workers, "wörker"));
  header.total_steps = 5000;
  RunView view(header);
  StepRecord step = step_of(41, 100.0, std::vector<std::int64_t>(workers, 1234), std::vector<double>(workers, 0.25));
  step.changed = true;
  step.reason = Reason::kRebalanced;
  step.words = "speeds are known better";
  view.add(step);
  return view;
}

TEST(FrameTest, SaysWhatMattersIn80By24) {
  const auto lines = frame(view_of_workers(4), {.columns = 80, .rows = 24});
  EXPECT_LE(lines.size(), 24U);
  EXPECT_EQ(lines[0], "isochron train: isochron on pair");
  EXPECT_THAT(lines[1], AllOf(StartsWith("step 42 of 5,000"), HasSubstr(" to go")));
  // 4 x 1234 samples in 0.25 s.
  EXPECT_EQ(lines[2], "now: 19,744 samples/s, step 250 ms, balance 1.000, utilization 1.000");
  EXPECT_EQ(lines[3], "all: 19,744 samples/s, p50 250 ms p99 250 ms, balance 1.000, utilization 1.000");
  EXPECT_THAT(
      lines, Contains(AllOf(StartsWith("wörker"), HasSubstr("1,234"), HasSubstr("25.0 %"), HasSubstr("250 ms"))));
  EXPECT_THAT(lines, Contains(HasSubstr("41  rebalanced: speeds are known better")));
  // No column is cut off: the last one has its name and its unit.
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("worker"), EndsWith(" comm"))));
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("wörker"), EndsWith("s"))));
}

TEST(FrameTest, SaysWhatTheSharesGain) {
  EXPECT_EQ(frame(view_of(10), {})[0], "isochron train: isochron on pair, now 1.2 x equal shares");
}

TEST(FrameTest, LeavesOutWholeClausesThatDoNotFit) {
  RunHeader header = header_of({"a", "b"});
  header.policy = "isochron";
  header.cluster = "dynamic";
  header.model = "resnet18";
  header.dataset = "a-dataset-with-a-name-that-is-as-long-as-names-of-hubs-are";
  header.total_steps = 50'000;
  RunView view(header);
  for (std::int64_t step = 0; step < 40; ++step) {
    view.add(step_of(step, 0.7 * static_cast<double>(step), {600'000, 1'400'000}, {0.7, 0.7}));
  }
  const auto lines = frame(view, {});
  EXPECT_THAT(lines[0], StartsWith("isochron train: isochron on dynamic"));
  EXPECT_THAT(lines[0], Not(HasSubstr("resnet18")));
  // 2,000,000 samples in 0.7 s make 2,857,143 a second; with "utilization 1.000" there would be 82 characters.
  EXPECT_EQ(lines[3], "all: 2,857,143 samples/s, p50 700 ms p99 700 ms, balance 1.000");
}

TEST(FrameTest, CallsTheUniformPolicyEqualBatches) {
  RunHeader header = header_of({"a", "b"});
  header.policy = "uniform";
  EXPECT_EQ(frame(RunView(header), {})[0], "isochron train: equal batches on pair");
}

TEST(FrameTest, SaysWhatPaddingWastes) {
  RunView view(header_of({"fast", "slow"}));
  StepRecord step = step_of(0, 0.0, {60, 40}, {1.0, 1.0});
  step.workers[0].work = 600.0;
  step.workers[1].work = 400.0;
  step.workers[1].padding = 125.0;
  view.add(step);
  EXPECT_THAT(frame(view, {})[1], HasSubstr(", padding 12.5 %"));  // 125 of 1000
}

TEST(FrameTest, TellsWaitingWithinStepsApart) {
  RunView view(header_of({"fast", "slow"}));
  StepRecord step = step_of(0, 0.0, {60, 40}, {1.5, 2.0});
  step.workers[0].inner_wait_seconds = 0.25;
  view.add(step);
  EXPECT_THAT(frame(view, {})[1], HasSubstr(", waiting within steps 6.2 %"));  // 0.25 of 2 seconds of 2 workers
}

TEST(FrameTest, FitsAnySize) {
  for (const std::size_t workers : {1U, 4U, 300U}) {
    const RunView view = view_of_workers(workers);
    for (const std::size_t columns : {1U, 20U, 80U, 300U}) {
      for (const std::size_t rows : {1U, 8U, 24U, 100U}) {
        const auto lines = frame(view, {.columns = columns, .rows = rows, .first_worker = 250});
        EXPECT_LE(lines.size(), rows);
        for (const std::string& line : lines) {
          EXPECT_LE(width_of(line), columns) << line;
        }
      }
    }
  }
}

TEST(FrameTest, ScrollsWorkersThatDoNotFit) {
  RunHeader header = header_of({});
  for (WorkerId id = 0; id < 100; ++id) {
    header.workers.push_back({.id = id, .name = "w" + std::to_string(id), .kind = "cpu"});
  }
  const RunView view(header);
  EXPECT_THAT(
      frame(view, {.first_worker = 0}), AllOf(Contains(StartsWith("w0 ")), Contains(HasSubstr("more workers"))));
  const auto scrolled = frame(view, {.first_worker = 50});
  EXPECT_THAT(scrolled, AllOf(Contains(StartsWith("w50 ")), Not(Contains(StartsWith("w49 ")))));
  EXPECT_THAT(frame(view, {.first_worker = 1000}), Contains(StartsWith("w99 ")));
  EXPECT_THAT(frame(view, {.rows = 0}), AllOf(Contains(StartsWith("w0 ")), Contains(StartsWith("w99 "))));
}

TEST(FrameTest, ObeysNothingThatALogSays) {
  EXPECT_EQ(printable("a\033[2Jb\r\n\x7f\x9b c\xc2\x9b d"), "a [2Jb   \xEF\xBF\xBD c  d");
  RunHeader header = header_of({"evil\033]0;title\007"});
  const RunView view(header);
  EXPECT_THAT(frame(view, {}), Not(Contains(AnyOf(HasSubstr("\033"), HasSubstr("\007")))));
}

TEST(FrameTest, DrawsBarsWithoutUnicode) {
  const auto lines = frame(view_of_workers(2), {.unicode = false});
  EXPECT_THAT(lines, Contains(HasSubstr("####")));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("█"))));
}

}  // namespace
}  // namespace isochron::view
