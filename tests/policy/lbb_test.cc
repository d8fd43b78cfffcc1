#include "isochron/baselines/lbb.h"

#include <algorithm>
#include <cmath>

#include "tests/policy/support.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/baselines/cubic_fit.h"
#include "isochron/baselines/time_profile.h"
#include "isochron/core/allocate/allocate.h"

namespace isochron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CubicFitTest, ReproducesACubic) {
  // 2 + b/2 + b^3/1000 through six points of its own; between two of the 33 points of the table the chord errs by at
  // most f'' h^2 / 8 = 0.006 * 64 * (63/32)^2 / 8 = 0.19.
  const auto cubic = [](double b) { return 2.0 + b / 2.0 + b * b * b / 1000.0; };
  std::vector<Curve::Point> points;
  for (const double b : {1.0, 2.0, 5.0, 20.0, 40.0, 64.0}) {
    points.push_back({.batch = b, .seconds = cubic(b)});
  }
  const Curve curve = fit_cubic(points);
  for (double b = 1.0; b <= 64.0; b += 1.0) {
    EXPECT_NEAR(curve.seconds(b), cubic(b), 0.19) << b;
  }
}

TEST(CubicFitTest, NeverDecreases) {
  // The cubic through these four points falls between 2 and 4.
  const Curve curve = fit_cubic(
      {{.batch = 1.0, .seconds = 1.0},
       {.batch = 2.0, .seconds = 5.0},
       {.batch = 4.0, .seconds = 2.0},
       {.batch = 8.0, .seconds = 9.0}});
  for (double b = 1.0; b < 20.0; b += 0.25) {
    EXPECT_LE(curve.seconds(b), curve.seconds(b + 0.25)) << b;
  }
  EXPECT_GT(curve.seconds(1.0), 0.0);
}

TEST(CubicFitTest, GrowsInProportionBeyondTheLastPoint) {
  const Curve curve = fit_cubic({{.batch = 1.0, .seconds = 5.0}, {.batch = 10.0, .seconds = 5.0}});
  EXPECT_NEAR(curve.seconds(30.0), 15.0, 1e-9);
}

TEST(CubicFitTest, MakesALineOfOnePoint) {
  EXPECT_NEAR(fit_cubic({{.batch = 10.0, .seconds = 5.0}}).seconds(20.0), 10.0, 1e-9);
}

Reading reading_of(std::int64_t batch, double seconds) {
  return {.valid = true, .batch = batch, .seconds = seconds};
}

TEST(TimeProfileTest, TakesNewsOfOneBatchAsNewsOfTheSpeed) {
  // t = b, then twice as slow at 32: every time doubles, also where nothing new was measured.
  TimeProfile profile;
  for (std::int64_t batch = 1; batch <= 64; batch *= 2) {
    profile.insert(reading_of(batch, static_cast<double>(batch)));
  }
  profile.stretch_to(reading_of(32, 64.0));
  EXPECT_NEAR(profile.curve().seconds(8.0), 16.0, 0.01);
  EXPECT_NEAR(profile.curve().seconds(64.0), 128.0, 0.01);
}

TEST(TimeProfileTest, KeepsTheNewestPointOfAPowerOfTwo) {
  // 40 and 50 both lie in 32..63; with one point the curve is a line through the origin.
  TimeProfile profile;
  profile.insert(reading_of(40, 400.0));
  profile.insert(reading_of(50, 50.0));
  EXPECT_NEAR(profile.curve().seconds(100.0), 100.0, 1e-9);
}

// Steps of the profile for four workers and B = 128: powers 1 to 64 = 128 / 2, two steps each.
constexpr int kProfileSteps = 14;

TEST(LbbTest, ProfilesPowersOfTwoByTurnsWithinTheGlobalBatch) {
  Controller controller = controller_for("lbb", roster_of({1, 1, 1, 1}, 128));
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(1, 63, 1, 63));
  (void)run(controller, affine_times({1, 1, 1, 1}), 1);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(63, 1, 63, 1));
  EXPECT_EQ(controller.decision().reason, Reason::kProbing);
  (void)run(controller, affine_times({1, 1, 1, 1}), 5);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(8, 56, 8, 56));
  EXPECT_THAT(controller.decision().words, HasSubstr("batches of 8"));
}

TEST(LbbTest, SolvesTheProfiledCurves) {
  // Beyond the profile's largest batch of 64 times are taken to be proportional, which is exact for t = b / speed. The
  // slowest of (16, 16, 10, 86) takes 86 / 32 = 2.69; (16, 16, 11, 85) would take 11 / 4 = 2.75.
  Controller controller = controller_for("lbb", roster_of({6, 6, 4, 32}, 128));
  (void)run(controller, affine_times({6, 6, 4, 32}), kProfileSteps);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(16, 16, 10, 86));
  EXPECT_EQ(controller.decision().reason, Reason::kRebalanced);
}

TEST(LbbTest, FindsTheBestSplitOfSaturatingWorkers) {
  // t = max(30, 10 + b) and max(8, b / 2): the exact split is that of the allocator on the true curves.
  const std::vector<Slot> slots{
      {.curve = Curve::saturating(30.0, 10.0, 1.0)}, {.curve = Curve::saturating(8.0, 0.0, 0.5)}};
  Controller controller = controller_for("lbb", roster_of({1, 1}, 128));
  const Times times = [&](std::size_t place, double batch) { return slots[place].curve.seconds(batch); };
  (void)run(controller, times, 200);
  const std::vector<std::int64_t>& found = controller.decision().batch_sizes;
  const double seconds = std::max(times(0, static_cast<double>(found[0])), times(1, static_cast<double>(found[1])));
  EXPECT_LT(seconds, 1.05 * allocate(slots, 128).seconds);
}

TEST(LbbTest, MovesOneSampleWhileTheSpreadIsSmall) {
  // Balanced at (32, 32); then the first worker is 15 % slower: spread 0.15 / 1.075 = 0.14.
  Controller controller = controller_for("lbb", roster_of({1, 1}, 64));
  (void)run(controller, affine_times({1, 1}), kProfileSteps);
  ASSERT_THAT(controller.decision().batch_sizes, ElementsAre(32, 32));
  EXPECT_EQ(run(controller, affine_times({1, 1}), 5), 0);
  (void)run(controller, affine_times({1 / 1.15, 1}), 1);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(31, 33));
  EXPECT_THAT(controller.decision().words, HasSubstr("times spread by 14 %"));
}

TEST(LbbTest, FitsAnewWhenTheSpreadIsLarge) {
  // The first worker loses half of its speed: 96 in proportion 1 : 2.
  Controller controller = controller_for("lbb", roster_of({1, 1}, 96));
  (void)run(controller, affine_times({1, 1}), kProfileSteps);
  ASSERT_THAT(controller.decision().batch_sizes, ElementsAre(48, 48));
  (void)run(controller, affine_times({0.5, 1}), 1);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(32, 64));
  EXPECT_THAT(controller.decision().words, HasSubstr("fitted anew"));
}

TEST(LbbTest, KeepsProfilesOfWorkersThatStay) {
  Controller controller = controller_for("lbb", roster_of({1, 2, 3}, 96));
  (void)run(controller, affine_times({1, 2, 3}), kProfileSteps);
  std::vector<Worker> workers = controller.roster().workers;
  workers.erase(workers.begin());
  // Speeds 2 : 3 share 96 without a new profile.
  EXPECT_THAT(controller.change_workers(workers).batch_sizes, ElementsAre(38, 58));
}

TEST(LbbTest, GivesALonelyWorkerEverything) {
  Controller controller = controller_for("lbb", roster_of({1}, 96));
  EXPECT_EQ(run(controller, affine_times({1}), 5), 0);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(96));
}

}  // namespace
}  // namespace isochron
