#include "isochron/view/curve_learner.h"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

namespace isochron::view {
namespace {

/// Batches from 10 to 80 and back, as a policy would try them, without noise.
void feed(CurveLearner& learner, std::size_t place, const std::function<double(double)>& seconds) {
  for (int round = 0; round < 40; ++round) {
    for (const double batch : {10.0, 20.0, 40.0, 80.0, 40.0, 20.0}) {
      learner.observe(place, batch, seconds(batch));
    }
  }
}

double at(const std::vector<Curve::Point>& points, double batch) {
  return Curve::table(points).seconds(batch);
}

TEST(CurveLearnerTest, FindsALine) {
  CurveLearner learner(40.0);
  feed(learner, 0, [](double batch) { return 0.01 * batch; });
  const auto curve = learner.curves({"cpu"}).at(0);
  EXPECT_EQ(curve.front().batch, 5.0);   // half of 10
  EXPECT_EQ(curve.back().batch, 100.0);  // a quarter beyond 80
  EXPECT_NEAR(at(curve, 10.0), 0.1, 0.01);
  EXPECT_NEAR(at(curve, 80.0), 0.8, 0.01);
}

TEST(CurveLearnerTest, FindsAPlateau) {
  // Flat up to 40 samples, as a device that is not full: among the candidates for a typical batch of 40.
  CurveLearner learner(40.0);
  feed(learner, 0, [](double batch) { return batch < 40.0 ? 0.38 + 0.0005 * batch : 0.01 * batch; });
  const auto curve = learner.curves({"gpu"}).at(0);
  ASSERT_EQ(curve.size(), 3U);
  EXPECT_EQ(curve[1].batch, 40.0);
  EXPECT_NEAR(at(curve, 10.0), 0.385, 0.02);
  EXPECT_NEAR(at(curve, 80.0), 0.8, 0.02);
}

TEST(CurveLearnerTest, FollowsTheSpeedOfTheLastSteps) {
  CurveLearner learner(40.0);
  feed(learner, 0, [](double batch) { return 0.01 * batch; });
  feed(learner, 0, [](double batch) { return 0.03 * batch; });
  EXPECT_NEAR(at(learner.curves({"cpu"}).at(0), 40.0), 1.2, 0.05);
}

TEST(CurveLearnerTest, IgnoresWhatCannotHaveBeenMeasured) {
  CurveLearner learner(40.0);
  for (const double seconds : {0.0, -1.0, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    learner.observe(1, 10.0, seconds);
  }
  learner.observe(1, 0.0, 1.0);
  const auto curves = learner.curves({"cpu", "cpu", "cpu"});
  ASSERT_EQ(curves.size(), 3U);
  EXPECT_TRUE(curves[0].empty());
  EXPECT_TRUE(curves[1].empty());
}

}  // namespace
}  // namespace isochron::view
