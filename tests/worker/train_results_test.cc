#include "isochron/worker/train_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::worker {
namespace {

using testing::HasSubstr;

TrainResults example() {
  TrainResults results{.policy = "uniform"};
  results.meter.add(
      {.seconds = 2.0, .workers = {{.batch = 30, .compute_seconds = 2.0}, {.batch = 10, .compute_seconds = 1.0}}});
  results.loss = 0.25;
  results.batch_sizes = {30, 10};
  results.evaluations = {
      {.step = 1, .seconds = 2.0, .evaluation = {.loss = 1.0, .accuracy = 0.5}},
      {.step = 2, .seconds = 4.0, .evaluation = {.loss = 0.5, .accuracy = 0.8}},
      {.step = 3, .seconds = 6.0, .evaluation = {.loss = 0.4, .accuracy = 0.9}}};
  return results;
}

TEST(TrainResultsTest, TakeTheTimeOfTheFirstEvaluationThatReachesTheTarget) {
  TrainResults results = example();
  EXPECT_EQ(results.seconds_to_accuracy(), std::nullopt);
  results.target_accuracy = 0.8;
  EXPECT_EQ(results.seconds_to_accuracy(), 4.0);
  results.target_accuracy = 0.95;
  EXPECT_EQ(results.seconds_to_accuracy(), std::nullopt);
  EXPECT_EQ(results.test_accuracy(), 0.9);
  EXPECT_EQ(TrainResults{}.test_accuracy(), std::nullopt);
}

TEST(TrainResultsTest, HaveTheKeysOfEveryCommand) {
  TrainResults results = example();
  results.target_accuracy = 0.95;
  const auto json = to_json(results);
  EXPECT_EQ(json["policy"], "uniform");
  EXPECT_EQ(json["samples_per_second"], 20.0);
  EXPECT_EQ(json["step_seconds"]["p50"], 2.0);
  EXPECT_EQ(json["balance"], 0.75);
  EXPECT_EQ(json["batch_sizes"], (std::vector{30, 10}));
  EXPECT_EQ(json["test_accuracy"], 0.9);
  EXPECT_TRUE(json["seconds_to_accuracy"].is_null());
  EXPECT_EQ(json["evaluations"].size(), 3U);
}

TEST(TrainResultsTest, AreSummedUpForPeople) {
  TrainResults results = example();
  results.target_accuracy = 0.8;
  const std::string text = summary(results);
  EXPECT_THAT(text, HasSubstr("uniform      1       20.0"));
  EXPECT_THAT(text, HasSubstr("batch sizes in the end: 30 10\naccuracy 0.8000 reached after 4.0 s of training\n"));
}

}  // namespace
}  // namespace isochron::worker
