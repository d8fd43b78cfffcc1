#include "isochron/core/policy/static.h"

#include <stdexcept>

#include "tests/policy/support.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(UniformTest, NeverMoves) {
  Controller controller = controller_for("uniform", roster_of({6, 6, 4, 32}, 130));
  EXPECT_EQ(run(controller, affine_times({6, 6, 4, 32}), 10), 0);
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(33, 33, 32, 32));
}

TEST(UniformTest, GivesWhatACeilingLeavesToTheOthers) {
  Roster roster = roster_of({1, 1, 1}, 90);
  roster.workers[1].max_batch = 10;
  EXPECT_THAT(controller_for("uniform", roster).decision().batch_sizes, ElementsAre(40, 10, 40));
}

TEST(StaticTest, SplitsByTheGivenWeights) {
  // 100 in proportion 1 : 2 : 4 is (14.3, 28.6, 57.1); (14, 29, 57) has the least largest b / weight of all splits.
  Controller controller = controller_for("static:weights=1/2/4", roster_of({5, 5, 5}, 100));
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(14, 29, 57));
  EXPECT_EQ(run(controller, affine_times({4, 2, 1}), 10), 0);
}

TEST(StaticTest, SplitsByTheWorkersOwnWeights) {
  EXPECT_THAT(controller_for("static", roster_of({6, 6, 4, 32}, 48)).decision().batch_sizes, ElementsAre(6, 6, 4, 32));
}

TEST(StaticTest, GivesAnOverwhelmedWorkerItsLeastBatch) {
  EXPECT_THAT(
      controller_for("static:weights=1e-300/1e300", roster_of({0, 0}, 64)).decision().batch_sizes, ElementsAre(1, 63));
}

TEST(StaticTest, AsksForAWeightOfEveryWorker) {
  EXPECT_THAT(
      error_of<std::invalid_argument>([] { (void)controller_for("static", roster_of({1, 0}, 64)); }),
      HasSubstr("worker 2: weight is 0; permitted: a positive number"));
  EXPECT_THAT(
      error_of<std::invalid_argument>([] { (void)controller_for("static:weights=1/2", roster_of({1, 1, 1}, 64)); }),
      HasSubstr("weights has 2 numbers; permitted: one for each of the 3 workers"));
}

TEST(SplitTest, SeatsNewcomersWithAnAverageShare) {
  // 30 and 10 stay, their average of 20 is the newcomer's: 60 samples in proportion 30 : 10 : 20 for B = 40.
  const Roster roster = roster_of({1, 1, 1}, 42);
  EXPECT_THAT(weights_with_newcomers(roster, std::vector<std::int64_t>{30, 10, 0}), ElementsAre(21, 7, 14));
}

}  // namespace
}  // namespace isochron
