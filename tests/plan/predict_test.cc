#include "isochron/plan/predict.h"

#include <cmath>
#include <stdexcept>
#include <vector>

#include "machines.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::plan {
namespace {

using testing::ElementsAre;

TEST(PredictTest, SharesAreTheExactAllocators) {
  // 1 and 3 times as fast: 10 and 30 of 40, both done after 1 s. Equal shares: 20 on the slow one, 2 s.
  const std::vector<Group> groups{linear_group("slow", 0.1), linear_group("fast", 0.1 / 3.0)};
  const Step best = predict_step(groups, {}, 40);
  EXPECT_THAT(best.batch_sizes, ElementsAre(10, 30));
  EXPECT_NEAR(best.seconds(), 1.0, 1e-4);
  EXPECT_NEAR(best.samples_per_second(), 40.0, 0.01);
  const Step uniform = predict_step(groups, {}, 40, Shares::kEqual);
  EXPECT_THAT(uniform.batch_sizes, ElementsAre(20, 20));
  EXPECT_NEAR(uniform.seconds(), 2.0, 1e-4);
  EXPECT_NEAR(samples_per_second_alone(groups[1].machine, 30), 30.0, 1e-9);
}

TEST(PredictTest, BoundsHold) {
  std::vector<Group> groups{linear_group("slow", 0.1), linear_group("fast", 0.01, 2)};
  groups[1].machine.max_batch = 10;
  EXPECT_THAT(predict_step(groups, {}, 40).batch_sizes, ElementsAre(20, 10, 10));
  EXPECT_THAT(predict_step(groups, {}, 40, Shares::kEqual).batch_sizes, ElementsAre(20, 10, 10));
  groups[0].machine.max_batch = 10;
  EXPECT_THROW((void)predict_step(groups, {}, 40), std::invalid_argument);
}

TEST(PredictTest, NoiseCostsWhatTheMaximumOfLogNormalsDoes) {
  std::vector<Group> groups{linear_group("a", 0.1, 2)};
  groups[0].machine.noise = 0.1;
  // E[max] of two with mean log 0: e^(s^2/2) x 2 Phi(s / sqrt 2) = 1.00501 x 1.05637.
  EXPECT_NEAR(predict_step(groups, {}, 20).seconds(), 1.00501 * 1.05637, 1e-3);
  groups[0].count = 1;
  EXPECT_NEAR(predict_step(groups, {}, 10).seconds(), 1.00501, 1e-3);
}

TEST(PredictTest, TheRingGoesByTheSlowestLinkAndHidesBehindBackward) {
  std::vector<Group> groups{linear_group("a", 0.1, 2), linear_group("b", 0.1, 2)};
  groups[0].machine.link = {.bytes_per_second = 100.0};
  groups[1].machine.link = {.bytes_per_second = 400.0, .delay_seconds = 0.5};
  // One bucket of 200 bytes, 4 workers: 2 x 3/4 x 200 / 100 + 2 x 3 x 0.5, and one bucket hides nothing.
  const Step one = predict_step(groups, {.gradient_bytes = 200.0}, 40);
  EXPECT_NEAR(one.exchange_seconds, 6.0, 1e-9);
  EXPECT_NEAR(one.seconds(), 7.0, 1e-4);

  // 4 buckets of 25 MiB at 100 MiB/s on 2 workers: 0.25 s each, 1 s in all. Compute of 30 s hides three of them; half
  // of that with an overlap of 0.5.
  constexpr double kMebi = 1024.0 * 1024.0;
  std::vector<Group> pair{linear_group("a", 1.0, 2)};
  pair[0].machine.link.bytes_per_second = 100.0 * kMebi;
  EXPECT_NEAR(predict_step(pair, {.gradient_bytes = 100.0 * kMebi}, 60).exchange_seconds, 0.25, 1e-9);
  EXPECT_NEAR(predict_step(pair, {.gradient_bytes = 100.0 * kMebi, .overlap = 0.5}, 60).exchange_seconds, 0.625, 1e-9);
  EXPECT_NEAR(predict_step(pair, {.gradient_bytes = 100.0 * kMebi, .overlap = 0.0}, 60).exchange_seconds, 1.0, 1e-9);
}

TEST(PredictTest, GradientsGoThroughMemoryAndTheOptimizerFollowsByTheSlowest) {
  std::vector<Group> groups{linear_group("a", 0.1), linear_group("b", 0.1)};
  groups[0].machine.copy_seconds = 0.01;
  groups[1].machine.copy_seconds = 0.005;
  groups[0].machine.update_seconds = 0.25;
  groups[1].machine.update_seconds = 0.5;
  const Step step = predict_step(groups, {.gradient_bytes = 200.0}, 40);
  EXPECT_THAT(step.batch_sizes, ElementsAre(20, 20));
  EXPECT_NEAR(step.compute_seconds, 2.0, 1e-4);
  EXPECT_NEAR(step.exchange_seconds, 2.0, 1e-9);  // 2 x 1/2 x 200 bytes x 0.01 s
  EXPECT_EQ(step.update_seconds, 0.5);
  // Alone there is nobody to send to.
  groups.pop_back();
  EXPECT_NEAR(predict_step(groups, {.gradient_bytes = 200.0}, 40).seconds(), 4.25, 1e-4);
}

}  // namespace
}  // namespace isochron::plan
