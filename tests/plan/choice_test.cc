#include "isochron/plan/choice.h"

#include <stdexcept>
#include <vector>

#include "machines.h"
#include <gtest/gtest.h>

namespace isochron::plan {
namespace {

TEST(ChoiceTest, TheSweepGoesAsFarAsWasMeasured) {
  std::vector<Group> groups{linear_group("a", 0.1, 3)};
  groups[0].machine.measured = 64;
  std::vector<std::int64_t> batches;
  for (const Step& step : sweep(groups, {}, kNoLimit)) {
    batches.push_back(step.global_batch);
  }
  // At least a sample for each of 3; 256 would give one of them 86.
  EXPECT_EQ(batches, (std::vector<std::int64_t>{4, 8, 16, 32, 64, 128}));
  EXPECT_EQ(sweep(groups, {}, 20).back().global_batch, 16);
  groups[0].machine.max_batch = 5;
  EXPECT_EQ(sweep(groups, {}, kNoLimit).back().global_batch, 8);
  groups[0].machine.min_batch = 5;  // 15 exactly: no power of two
  EXPECT_THROW((void)sweep(groups, {}, kNoLimit), std::invalid_argument);
}

TEST(ChoiceTest, TakesTheSmallestBatchNearTheHighestRate) {
  std::vector<Group> groups{linear_group("a", 0.1)};
  groups[0].machine.curve = Curve::affine(1.0, 0.1);
  groups[0].machine.measured = 1024;
  const std::vector<Step> steps = sweep(groups, {}, kNoLimit);
  // b / (1 + 0.1 b): 1024 gives 9.903; 95 % of it, 9.408, needs b >= 158.9.
  EXPECT_EQ(smallest_near_best(steps, 0.95).global_batch, 256);
  EXPECT_EQ(smallest_near_best(steps, 1.0).global_batch, 1024);
}

TEST(ChoiceTest, SaysWhatOneMachineLessOrMoreMakes) {
  std::vector<Group> groups{linear_group("fast", 0.01, 2), linear_group("slow", 0.1)};
  groups[0].machine.price_per_hour = 2.0;
  groups[1].machine.price_per_hour = 1.0;
  EXPECT_DOUBLE_EQ(price_per_hour(groups), 5.0);
  const std::vector<Marginal> result = marginals(groups, {}, 2100);
  ASSERT_EQ(result.size(), 2U);
  // 200 + 10 samples a second; 110 without a fast one, 310 with one more; 200 and 220 for the slow one.
  EXPECT_NEAR(result[0].dropped->step.samples_per_second(), 110.0, 0.5);
  EXPECT_DOUBLE_EQ(result[0].dropped->price_per_hour, 3.0);
  EXPECT_NEAR(result[0].added->step.samples_per_second(), 310.0, 0.5);
  EXPECT_NEAR(result[1].dropped->step.samples_per_second(), 200.0, 0.5);
  EXPECT_NEAR(result[1].added->step.samples_per_second(), 220.0, 0.5);
  EXPECT_DOUBLE_EQ(result[1].added->price_per_hour, 6.0);
}

TEST(ChoiceTest, AMachineBehindASlowLinkIsNotWorthHaving) {
  std::vector<Group> groups{linear_group("near", 0.01, 2), linear_group("far", 0.01)};
  groups[1].machine.link.bytes_per_second = 1000.0;
  const auto result = marginals(groups, {.gradient_bytes = 10'000.0}, 300);
  const double now = predict_step(groups, {.gradient_bytes = 10'000.0}, 300).samples_per_second();
  EXPECT_GT(result[1].dropped->step.samples_per_second(), now);
  // The last machine cannot be dropped, nor one without which the batch does not fit.
  EXPECT_FALSE(marginals({linear_group("one", 0.1)}, {}, 10)[0].dropped.has_value());
  groups[0].machine.max_batch = groups[1].machine.max_batch = 100;
  EXPECT_FALSE(marginals(groups, {}, 300)[0].dropped.has_value());
}

}  // namespace
}  // namespace isochron::plan
