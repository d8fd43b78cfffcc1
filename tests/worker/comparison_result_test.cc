#include "isochron/worker/comparison_result.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/view/run_view.h"

namespace isochron::worker {
namespace {

using testing::HasSubstr;

StepRecord step(std::int64_t number, double seconds, double first, double second) {
  StepRecord record{.step = number, .seconds = seconds, .loss = 1.0};
  record.workers = {
      {.id = 0, .batch = 30, .compute_seconds = first}, {.id = 1, .batch = 10, .compute_seconds = second}};
  return record;
}

// Three steps of 40 samples in 1.0 + 0.5 + 0.5 s.
LaneLog short_log() {
  LaneLog log{.steps = {step(0, 1.0, 1.0, 0.5), step(1, 0.5, 0.4, 0.5), step(2, 0.5, 0.5, 0.5)}};
  log.seconds = 2.0;
  log.evaluations = {
      {.step = 1, .seconds = 1.0, .accuracy = 0.5},
      {.step = 2, .seconds = 1.5, .accuracy = 0.8},
      {.step = 3, .seconds = 2.0, .accuracy = 0.9}};
  return log;
}

TEST(ComparisonResultTest, MeasuresSpeedBalanceAndShares) {
  const std::vector<Stage> stages{{.first_step = 0, .solo = {70.0, 30.0}}};
  const LaneResult result = make_result("isochron", short_log(), stages, 0.75);
  EXPECT_DOUBLE_EQ(result.samples_per_second, 120.0 / 2.0);
  EXPECT_DOUBLE_EQ(result.settled_samples_per_second, 80.0 / 1.0);
  EXPECT_DOUBLE_EQ(result.step_seconds.p50, 0.5);
  EXPECT_DOUBLE_EQ(result.balance, (0.75 + 0.9 + 1.0) / 3);
  // In the steps 30 / 1 + 10 / 0.5, 30 / 0.4 + 10 / 0.5 and 30 / 0.5 + 10 / 0.5 samples a second.
  EXPECT_DOUBLE_EQ(result.utilization, (40.0 / 50 / 1.0 + 40.0 / 95 / 0.5 + 40.0 / 80 / 0.5) / 3);
  EXPECT_DOUBLE_EQ(result.share_of_solo, 3 * 0.4 / 2.0);  // 40 samples at 100 a second take 0.4 s
  EXPECT_DOUBLE_EQ(*result.test_accuracy, 0.9);
  EXPECT_DOUBLE_EQ(*result.seconds_to_accuracy, 1.5);
  EXPECT_THAT(result.batch_sizes, testing::ElementsAre(30, 10));
}

// What `make demo` prints and what its report says are the same numbers.
TEST(ComparisonResultTest, AReportOfTheSameStepsSaysTheSame) {
  const LaneResult result = make_result("isochron", short_log(), std::vector<Stage>(1), 0);
  view::RunView report(RunHeader{});
  for (const StepRecord& record : short_log().steps) {
    report.add(record);
  }
  EXPECT_EQ(result.samples_per_second, report.summary().samples_per_second);
  EXPECT_EQ(result.balance, report.summary().balance);
  EXPECT_EQ(result.utilization, report.summary().utilization);
}

TEST(ComparisonResultTest, TheIdealFollowsTheStages) {
  const std::vector<Stage> stages{{.first_step = 0, .solo = {70.0, 30.0}}, {.first_step = 2, .solo = {25.0, 25.0}}};
  const LaneResult result = make_result("isochron", short_log(), stages, 0);
  EXPECT_DOUBLE_EQ(result.share_of_solo, (2 * 0.4 + 0.8) / 2.0);
  EXPECT_FALSE(result.seconds_to_accuracy.has_value());
}

TEST(ComparisonResultTest, WithoutNoiseTheBoundIsTheOraclesOwnShare) {
  LaneLog log;
  for (std::int64_t i = 0; i < 20; ++i) {
    log.steps.push_back(step(i, 0.5, 0.5, 0.5));
  }
  const std::vector<Stage> stages{{.first_step = 0, .solo = {70.0, 30.0}}};
  EXPECT_NEAR(*noise_bound(log, stages), 0.4 / 0.5, 1e-3);
  // Noise makes the slowest of two slower than either.
  for (std::size_t i = 0; i < 20; ++i) {
    log.steps[i].workers[0].compute_seconds *= i % 2 == 0 ? 1.1 : 1 / 1.1;
    log.steps[i].workers[1].compute_seconds *= i % 4 < 2 ? 1.1 : 1 / 1.1;
  }
  EXPECT_LT(*noise_bound(log, stages), 0.77);
}

TEST(ComparisonResultTest, TakesMediansOverTheRounds) {
  std::vector<LaneResult> rounds(3, LaneResult{.label = "uniform"});
  rounds[0].samples_per_second = 10;
  rounds[1].samples_per_second = 30;
  rounds[2].samples_per_second = 11;
  rounds[1].test_accuracy = 0.5;
  const LaneResult result = median(rounds);
  EXPECT_EQ(result.samples_per_second, 11);
  EXPECT_FALSE(result.test_accuracy.has_value());  // not in every round
}

TEST(ComparisonResultTest, TheSentenceSaysWhatWasGained) {
  const std::vector<LaneResult> results{
      {.label = "uniform", .samples_per_second = 100}, {.label = "isochron", .samples_per_second = 250}};
  EXPECT_THAT(comparison_sentence(results, "hl8"), HasSubstr("2.50 times as fast as equal batches"));
  EXPECT_THAT(comparison_table(results), HasSubstr("2.50"));
}

}  // namespace
}  // namespace isochron::worker
