#include "isochron/core/curve/fit.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace isochron {
namespace {

using Points = std::vector<Curve::Point>;

Points measured(const Curve& curve) {
  Points points;
  for (double batch = 1.0; batch <= 512.0; batch *= 2.0) {
    points.push_back({.batch = batch, .seconds = curve.seconds(batch)});
  }
  return points;
}

TEST(CurveFitTest, FindsALineItsFixedCostAndAFloor) {
  const BentFit line = fit_bent_line(measured(Curve::linear(0.25)));
  EXPECT_NEAR(line.line.slope, 0.25, 1e-9);
  EXPECT_NEAR(line.line.fixed, 0.0, 1e-9);
  EXPECT_EQ(line.line.floor, 0.0);
  EXPECT_NEAR(line.misfit, 0.0, 1e-9);

  const BentFit affine = fit_bent_line(measured(Curve::affine(3.0, 0.5)));
  EXPECT_NEAR(affine.line.fixed, 3.0, 1e-9);
  EXPECT_NEAR(affine.line.slope, 0.5, 1e-9);

  // Flat at 8 up to 64 samples, from there 0.125 a sample.
  const BentFit bent = fit_bent_line(measured(Curve::saturating(8.0, 0.0, 0.125)));
  EXPECT_NEAR(bent.line.floor, 8.0, 1e-9);
  EXPECT_NEAR(bent.line.slope, 0.125, 1e-9);
  EXPECT_NEAR(bent.misfit, 0.0, 1e-9);
  EXPECT_NEAR(bent.curve().seconds(16.0), 8.0, 1e-9);
  EXPECT_NEAR(bent.curve().seconds(1024.0), 128.0, 1e-6);
}

TEST(CurveFitTest, StaysAtZeroOrMoreWhateverTheNoise) {
  const BentFit falling = fit_bent_line(Points{{1, 4.0}, {2, 3.0}, {4, 2.0}});
  EXPECT_EQ(falling.line.slope, 0.0);
  // The level with the least relative squares: (1/4 + 1/3 + 1/2) / (1/16 + 1/9 + 1/4).
  EXPECT_NEAR(falling.line.fixed, (13.0 / 12.0) / (61.0 / 144.0), 1e-9);
  // Steeper than a line through the origin: no cost per step below 0.
  const BentFit steep = fit_bent_line(Points{{1, 1.0}, {2, 3.0}});
  EXPECT_EQ(steep.line.fixed, 0.0);
  EXPECT_GT(steep.line.slope, 0.0);
  EXPECT_NEAR(fit_bent_line(Points{{8, 2.0}}).line.slope, 0.25, 1e-12);
}

TEST(CurveFitTest, LittleNoiseMakesNoFloor) {
  Points points = measured(Curve::affine(3.0, 0.5));
  for (std::size_t i = 0; i < points.size(); ++i) {
    points[i].seconds *= i % 2 == 0 ? 1.02 : 0.98;
  }
  const BentFit fit = fit_bent_line(points);
  EXPECT_EQ(fit.line.floor, 0.0);
  EXPECT_NEAR(fit.line.slope, 0.5, 0.02);
  EXPECT_NEAR(fit.misfit, 0.02, 0.005);
}

TEST(CurveFitTest, PoolsTimesThatDecrease) {
  // 4 and 1 are out of order: their geometric mean is 2, and that is above neither neighbour.
  const Points pooled = monotone({{1, 1.5}, {2, 4.0}, {4, 1.0}, {8, 5.0}});
  ASSERT_EQ(pooled.size(), 4U);
  EXPECT_EQ(pooled[0].seconds, 1.5);
  EXPECT_NEAR(pooled[1].seconds, 2.0, 1e-12);
  EXPECT_EQ(pooled[1].seconds, pooled[2].seconds);
  EXPECT_EQ(pooled[3].seconds, 5.0);
  EXPECT_EQ(pooled[2].batch, 4.0);
  // 8, 4, 2: all three in one.
  for (const Curve::Point& point : monotone({{1, 8.0}, {2, 4.0}, {4, 2.0}})) {
    EXPECT_NEAR(point.seconds, 4.0, 1e-12);
  }
  EXPECT_TRUE(monotone({}).empty());
}

}  // namespace
}  // namespace isochron
