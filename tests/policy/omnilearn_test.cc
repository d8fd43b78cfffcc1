#include "isochron/baselines/omnilearn.h"

#include <algorithm>
#include <cmath>

#include "tests/policy/support.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Lt;

// Where the reference code's law settles from equal batches when t = b / cores, without anybody mending it.
std::vector<std::int64_t> settled(const std::vector<double>& cores, BatchBounds bounds) {
  std::vector<std::int64_t> batches(cores.size(), 32);
  for (int epoch = 0; epoch < 50; ++epoch) {
    std::vector<double> seconds;
    seconds.reserve(cores.size());
    for (std::size_t k = 0; k < cores.size(); ++k) {
      seconds.push_back(static_cast<double>(batches[k]) / cores[k]);
    }
    const std::vector<double> next = omnilearn_code_law(batches, seconds, 128, 0.2, bounds);
    std::ranges::transform(next, batches.begin(), [](double batch) { return static_cast<std::int64_t>(batch); });
  }
  return batches;
}

// The step's time over that of the real-valued split in proportion to the cores, 128 / 48.
double time_over_ideal(const std::vector<std::int64_t>& batches, const std::vector<double>& cores) {
  double slowest = 0.0;
  for (std::size_t k = 0; k < cores.size(); ++k) {
    slowest = std::max(slowest, static_cast<double>(batches[k]) / cores[k]);
  }
  return slowest / (128.0 / 48.0);
}

TEST(OmniLearnLawTest, ScalesEachBatchByMeanTimeOverItsOwn) {
  // Times 1, 2, 3 have mean 2: the batches become 10 * 2/1, 10 * 2/2, 10 * 2/3; the sum is 36.7, not 30.
  EXPECT_THAT(
      omnilearn_law(std::vector<std::int64_t>{10, 10, 10}, std::vector{1.0, 2.0, 3.0}),
      ElementsAre(20.0, 10.0, DoubleNear(20.0 / 3.0, 1e-12)));
}

TEST(OmniLearnLawTest, LeavesAWorkerWithoutATimeAlone) {
  EXPECT_THAT(
      omnilearn_law(std::vector<std::int64_t>{10, 10, 10}, std::vector{1.0, kUnknown, 3.0}),
      ElementsAre(20.0, 10.0, DoubleNear(20.0 / 3.0, 1e-12)));
}

TEST(OmniLearnLawTest, ReferenceCodeSettlesAwayFromTheBalance) {
  const BatchBounds published{.min_batch = 16, .max_batch = 96};
  const std::vector<double> hl2{12, 12, 8, 16};
  const std::vector<double> hl4{9, 9, 6, 24};
  const std::vector<double> hl8{6, 6, 4, 32};
  EXPECT_THAT(settled(hl2, published), ElementsAre(31, 31, 22, 45));  // sum 129
  EXPECT_THAT(settled(hl4, published), ElementsAre(25, 25, 19, 62));  // sum 131
  EXPECT_THAT(settled(hl8, published), ElementsAre(17, 17, 16, 81));  // sum 131
  EXPECT_NEAR(time_over_ideal(settled(hl2, published), hl2), 1.055, 0.001);
  EXPECT_NEAR(time_over_ideal(settled(hl4, published), hl4), 1.1875, 0.001);
  EXPECT_NEAR(time_over_ideal(settled(hl8, published), hl8), 1.5, 0.001);
}

TEST(OmniLearnLawTest, ReferenceCodeProposesNegativeBatchesWithLooseBounds) {
  // Uniform at HL8: times 32 / (6, 6, 4, 32) with mean 4.92, so the law says (29.5, 29.5, 19.7, 157.3). Rounded up the
  // sum is 238; (238 - 128) / 4 = 27.5 less for everybody: 20 - 27.5 = -7.5, rounded up to -7.
  const std::vector<std::int64_t> batches(4, 32);
  const std::vector<double> seconds{32.0 / 6, 32.0 / 6, 32.0 / 4, 32.0 / 32};
  EXPECT_THAT(
      omnilearn_code_law(batches, seconds, 128, 0.2, {.min_batch = 1, .max_batch = 1000}),
      ::testing::Contains(Lt(0.0)));
}

TEST(OmniLearnLawTest, RestoresTheSumWithinTheBounds) {
  // 60 short of 128: 20 each would lift the first beyond 25, so it gets 15 and the others 22.5.
  const std::vector<double> batches{10.0, 20.0, 38.0};
  const std::vector<BatchBounds> bounds{{1, 25}, {1, 100}, {1, 100}};
  EXPECT_THAT(
      restore_sum(batches, bounds, 128, SumRule::kAdditive),
      ElementsAre(DoubleNear(25.0, 1e-9), DoubleNear(42.5, 1e-9), DoubleNear(60.5, 1e-9)));
  // Twice everything is 136; 128 / 68 of everything keeps the proportions.
  EXPECT_THAT(
      restore_sum(batches, bounds, 128, SumRule::kScaled),
      ElementsAre(
          DoubleNear(10.0 * 128 / 68, 1e-9), DoubleNear(20.0 * 128 / 68, 1e-9), DoubleNear(38.0 * 128 / 68, 1e-9)));
  // No room: everybody at the upper bound.
  EXPECT_THAT(restore_sum(batches, bounds, 1000, SumRule::kAdditive), ElementsAre(25.0, 100.0, 100.0));
}

TEST(OmniLearnTest, NeedsTwoAdjustmentsOnThePapersUnequalWorkers) {
  // H2 = (9, 12, 18) cores and a fixed cost per step, t = 1 + b / cores. From (32, 32, 32) the law's first answer
  // underrates how much of the time is fixed: (24, 31, 41) with times 3.67, 3.58, 3.28, 7 % apart from the mean; its
  // second, (23, 30, 43), is within the dead band of 5 %.
  Controller controller = controller_for("omnilearn", roster_of({9, 12, 18}, 96));
  EXPECT_EQ(run(controller, affine_times({9, 12, 18}, 1.0), 20), 2);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(23, 30, 43));
  EXPECT_EQ(controller.decision().reason, Reason::kKept);
}

TEST(OmniLearnTest, ScaledSumConvergesInOneStepUnderALinearCost) {
  // In proportion to 6 : 6 : 4 : 32, 128 samples are (16, 16, 10.67, 85.33).
  Controller controller = controller_for("omnilearn:sum=scaled", roster_of({6, 6, 4, 32}, 128));
  EXPECT_EQ(run(controller, affine_times({6, 6, 4, 32}), 20), 1);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(16, 16, 11, 85));
}

TEST(OmniLearnTest, StartsInProportionToTheWeights) {
  const Controller controller = controller_for("omnilearn:start=static", roster_of({1, 3}, 64));
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(16, 48));
}

TEST(OmniLearnTest, IgnoresWhatStaysWithinTheDeadBand) {
  // Times 1.04 and 0.96 of the mean move a batch by 4 %.
  Controller controller = controller_for("omnilearn", roster_of({1, 1}, 64));
  EXPECT_EQ(run(controller, affine_times({1 / 1.04, 1 / 0.96}), 20), 0);
  Controller eager = controller_for("omnilearn:dead-band=0.01", roster_of({1, 1}, 64));
  EXPECT_GT(run(eager, affine_times({1 / 1.04, 1 / 0.96}), 20), 0);
}

TEST(OmniLearnTest, SmoothsTimesSinceTheLastAdjustment) {
  // After ten equal steps one worker takes 1.2x as long once: with a weight of 0.2 that looks like 1.04 and 1.00, which
  // is 2 % from the mean. Without smoothing it is 10 %.
  for (const auto& [policy, changes] : {std::pair{"omnilearn", 0}, {"omnilearn:ewma=1", 1}}) {
    Controller controller = controller_for(policy, roster_of({1, 1}, 64));
    (void)run(controller, affine_times({1, 1}), 10);
    EXPECT_EQ(run(controller, affine_times({1 / 1.2, 1}), 1), changes) << policy;
  }
}

TEST(OmniLearnTest, NeverGoesBeyondABatchThatCostThroughput) {
  // The first worker is four times as fast up to 40 samples and thrashes beyond: ten times the time.
  const Times times = [](std::size_t place, double batch) {
    return place == 0 ? batch / 4.0 * (batch > 40.0 ? 10.0 : 1.0) : batch;
  };
  Controller controller = controller_for("omnilearn:sum=scaled", roster_of({1, 1}, 64));
  EXPECT_GT(controller.observe(report_of(controller, times)).batch_sizes[0], 40);
  (void)run(controller, times, 50);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(32, 32));
  Controller careless = controller_for("omnilearn:sum=scaled,drop=1", roster_of({1, 1}, 64));
  (void)run(careless, times, 50);
  EXPECT_THAT(careless.decision().batch_sizes, ::testing::Not(ElementsAre(32, 32)));
}

TEST(OmniLearnTest, DoesNotBlameTheBatchForALaterSlowdown) {
  // 64 in proportion 2 : 1 is (43, 21). The first worker grew into it without loss; when it later falls to half a
  // sample per second and recovers, nothing stands in the way of the old split.
  Controller controller = controller_for("omnilearn:sum=scaled", roster_of({1, 1}, 64));
  (void)run(controller, affine_times({2, 1}), 5);
  ASSERT_THAT(controller.decision().batch_sizes, ElementsAre(43, 21));
  (void)run(controller, affine_times({0.5, 1}), 30);
  ASSERT_LT(controller.decision().batch_sizes[0], 32);
  (void)run(controller, affine_times({2, 1}), 30);
  EXPECT_GE(controller.decision().batch_sizes[0], 41);
}

TEST(OmniLearnTest, ReferenceCodeDecidesOncePerInterval) {
  Controller controller = controller_for("omnilearn:variant=code,interval=5", roster_of({6, 6, 4, 32}, 128));
  EXPECT_EQ(run(controller, affine_times({6, 6, 4, 32}), 4), 0);
  EXPECT_EQ(controller.decision().reason, Reason::kObserving);
  EXPECT_EQ(run(controller, affine_times({6, 6, 4, 32}), 1), 1);
}

TEST(OmniLearnTest, KeepsTheSplitWithoutTelemetry) {
  Controller controller = controller_for("omnilearn", roster_of({1, 1}, 64));
  EXPECT_EQ(controller.observe({}).reason, Reason::kNoTelemetry);
  EXPECT_THAT(controller.decision().batch_sizes, Each(32));
}

TEST(OmniLearnTest, RemembersCeilingsOfWorkersThatStay) {
  const Times times = [](std::size_t place, double batch) {
    return place == 0 ? batch / 4.0 * (batch > 40.0 ? 10.0 : 1.0) : batch;
  };
  Controller controller = controller_for("omnilearn:sum=scaled", roster_of({1, 1}, 64));
  (void)run(controller, times, 2);
  std::vector<Worker> workers = controller.roster().workers;
  workers.push_back(Worker{.id = 7});
  (void)controller.change_workers(workers);
  // Speeds 4 : 1 : 1 share 64 as 43 : 11 : 10; the ceiling found before is 32.
  for (int step = 0; step < 20; ++step) {
    (void)run(controller, times, 1);
    EXPECT_LE(controller.decision().batch_sizes[0], 32);
  }
  EXPECT_GE(controller.decision().batch_sizes[0], 30);
}

}  // namespace
}  // namespace isochron
