#include "isochron/core/predict/speedup.h"

#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

using testing::ElementsAre;

Pace linear_pace(double seconds_per_sample) {
  return {.slot = {.curve = Curve::linear(seconds_per_sample)}};
}

TEST(SpeedupTest, ComparesTheBestSplitWithEqualShares) {
  // 3 times as fast: 10 and 30 of 40 take 1 s each; 20 of the slow one 2 s.
  const std::vector<Pace> paces{linear_pace(0.1), linear_pace(0.1 / 3.0)};
  EXPECT_THAT(split(paces, 40, Shares::kBest), ElementsAre(10, 30));
  EXPECT_THAT(split(paces, 40, Shares::kEqual), ElementsAre(20, 20));
  EXPECT_NEAR(speedup(paces, 40, 0.0), 2.0, 1e-4);
  EXPECT_NEAR(speedup(paces, 40, 1.0), 3.0 / 2.0, 1e-4);  // a second more for both
}

TEST(SpeedupTest, AFixedPartThatIsSlowOnASlowWorkerLeavesTheGain) {
  // s (20 + b): equal shares take 0.1 (20 + 20) = 4 s; 0 and 40 would take 2 s and (20 + 40) / 30 = 2 s.
  const std::vector<Pace> paces{
      {.slot = {.curve = Curve::affine(2.0, 0.1)}}, {.slot = {.curve = Curve::affine(2.0 / 3.0, 0.1 / 3.0)}}};
  EXPECT_NEAR(speedup(paces, 40, 0.0), 2.0, 0.03);
}

TEST(SpeedupTest, EqualWorkersGainNothingAndNoiseCostsBoth) {
  std::vector<Pace> paces(4, linear_pace(0.01));
  EXPECT_NEAR(speedup(paces, 400, 0.0), 1.0, 1e-9);
  for (Pace& pace : paces) {
    pace.noise = 0.2;
  }
  EXPECT_GT(expected_compute(paces, std::vector<std::int64_t>(4, 100)), 1.1);
  EXPECT_NEAR(speedup(paces, 400, 0.0), 1.0, 1e-9);
}

TEST(SpeedupTest, KeepsBounds) {
  std::vector<Pace> paces{linear_pace(0.1), linear_pace(0.01)};
  paces[1].slot.max_batch = 25;
  EXPECT_THAT(split(paces, 40, Shares::kBest), ElementsAre(15, 25));
  paces[0].slot.max_batch = 10;
  EXPECT_THROW((void)speedup(paces, 40, 0.0), std::invalid_argument);
}

}  // namespace
}  // namespace isochron
