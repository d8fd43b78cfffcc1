#include "isochron/baselines/ar.h"

#include <cmath>
#include <stdexcept>

#include "tests/predict/series.h"
#include <gtest/gtest.h>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

TEST(AutoRegressionTest, LearnsAnExactRecurrence) {
  // A rotation by a sixth of a circle: v(k) = v(k-1) - v(k-2) + 100 around a mean of 100.
  AutoRegression predictor(2);
  double before = 110.0;
  double last = 120.0;
  for (int k = 0; k < 200; ++k) {
    predictor.observe(last, {});
    const double next = last - before + 100.0;
    if (k > 20) {
      ASSERT_NEAR(predictor.predict({}), next, 0.2) << k;  // the ridge costs a little
    }
    before = last;
    last = next;
  }
}

TEST(AutoRegressionTest, BeatsTheLastSpeedOnAnAutoregressiveSeries) {
  // AR(1) with a = 0.5: the last speed errs with a variance of 2 (1 - a) = 1, the best prediction with 1 - a^2 = 0.75
  // of the series' own; a fit over about 50 steps with 4 terms loses some 4/50 to 8/50 of that again.
  Random random({21});
  std::vector<SeriesStep> series;
  double deviation = 0.0;
  for (int k = 0; k < 3000; ++k) {
    deviation = 0.5 * deviation + 5.0 * std::sqrt(0.75) * random.normal();
    series.push_back({100.0 + deviation, {}});
  }
  const double ratio = error_of({.kind = "ar"}, series, 100) / error_of({.kind = "memoryless"}, series, 100);
  EXPECT_GT(ratio, 0.72);
  EXPECT_LT(ratio, 0.87);
}

TEST(AutoRegressionTest, NeverLeavesTheBandAroundRecentSpeeds) {
  AutoRegression predictor(1);
  double speed = 1.0;
  for (int k = 0; k < 10; ++k) {
    speed *= 4.0;
    predictor.observe(speed, {});
    EXPECT_LE(predictor.predict({}), 2.0 * speed);
  }
}

TEST(AutoRegressionTest, RefusesTheStateOfAnotherOrder) {
  AutoRegression two(2);
  AutoRegression three(3);
  EXPECT_THROW(restore_state(three, save_state(two)), std::invalid_argument);
}

}  // namespace
}  // namespace isochron
