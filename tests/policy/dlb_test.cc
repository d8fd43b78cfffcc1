#include "isochron/baselines/dlb.h"

#include "tests/policy/support.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

using ::testing::ElementsAre;

TEST(DlbTest, MovesOnceAnIntervalAndThenExactlyUnderALinearCost) {
  // 96 in proportion to the speeds 1 : 2 : 3.
  Controller controller = controller_for("dlb:interval=10", roster_of({1, 1, 1}, 96));
  EXPECT_EQ(run(controller, affine_times({1, 2, 3}), 9), 0);
  EXPECT_EQ(run(controller, affine_times({1, 2, 3}), 1), 1);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(16, 32, 48));
  EXPECT_EQ(run(controller, affine_times({1, 2, 3}), 30), 0);
}

TEST(DlbTest, UsesTheMeanTimeOfTheInterval) {
  // Equal batches of 32; the second worker needs 32 s in one step and 96 s in the other, 64 s on average: half the
  // speed of the first, so 64 is split 2 : 1.
  Controller controller = controller_for("dlb:interval=2", roster_of({1, 1}, 64));
  (void)run(controller, affine_times({1, 1}), 1);
  (void)run(controller, affine_times({1, 1.0 / 3.0}), 1);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(43, 21));
}

TEST(DlbTest, TakesASilentWorkerForAnAverageOne) {
  // Times 1 and 3 s, mean 2: equal shares over 1, 3 and 2 s, i.e. 6 : 2 : 3 of 66.
  Controller controller = controller_for("dlb:interval=1", roster_of({1, 1, 1}, 66));
  StepTelemetry telemetry =
      report_of(controller, [](std::size_t place, double batch) { return batch * (place == 0 ? 1.0 : 3.0) / 22.0; });
  telemetry.workers.pop_back();
  EXPECT_THAT(controller.observe(telemetry).batch_sizes, ElementsAre(36, 12, 18));
}

TEST(DlbTest, WaitsForTelemetry) {
  Controller controller = controller_for("dlb:interval=1", roster_of({1, 1}, 64));
  EXPECT_EQ(controller.observe({}).reason, Reason::kNoTelemetry);
}

}  // namespace
}  // namespace isochron
