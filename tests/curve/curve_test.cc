#include "isochron/core/curve/curve.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace isochron {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(CurveTest, TakesNoTimeForNoSamples) {
  EXPECT_EQ(Curve::affine(2.0, 0.5).seconds(0.0), 0.0);
  EXPECT_EQ(Curve::saturating(3.0, 0.0, 0.5).seconds(0.0), 0.0);
  EXPECT_EQ(Curve::table({{.batch = 4.0, .seconds = 1.0}}).seconds(0.0), 0.0);
}

TEST(CurveTest, LinearAndAffineAreLines) {
  EXPECT_EQ(Curve::linear(0.5).seconds(8.0), 4.0);
  EXPECT_EQ(Curve::affine(2.0, 0.5).seconds(8.0), 6.0);  // 2 + 0.5 x 8
  EXPECT_EQ(Curve::affine(2.0, 0.5).capacity(6.0), 8.0);
  EXPECT_EQ(Curve::affine(2.0, 0.5).capacity(1.0), 0.0);  // less than the fixed cost
}

TEST(CurveTest, SaturatingIsFlatUntilTheLineOvertakesIt) {
  const Curve curve = Curve::saturating(4.0, 1.0, 0.5);  // the line reaches 4 at b = (4 - 1) / 0.5 = 6
  EXPECT_EQ(curve.seconds(1.0), 4.0);
  EXPECT_EQ(curve.seconds(6.0), 4.0);
  EXPECT_EQ(curve.seconds(10.0), 6.0);
  EXPECT_EQ(curve.capacity(3.9), 0.0);
  EXPECT_EQ(curve.capacity(4.0), 6.0);
  EXPECT_EQ(curve.capacity(6.0), 10.0);
}

TEST(CurveTest, FloorSlopeTiltsThePlateau) {
  const Curve curve = Curve::saturating(4.0, 1.0, 0.5, 0.25);  // 4 + b/4 = 1 + b/2 at b = 12
  EXPECT_EQ(curve.seconds(4.0), 5.0);
  EXPECT_EQ(curve.seconds(12.0), 7.0);
  EXPECT_EQ(curve.seconds(20.0), 11.0);
  EXPECT_EQ(curve.capacity(5.0), 4.0);
  EXPECT_EQ(curve.capacity(11.0), 20.0);
}

TEST(CurveTest, TableIsFlatBelowLinearBetweenAndGoesOnBeyond) {
  const Curve curve =
      Curve::table({{.batch = 4.0, .seconds = 1.0}, {.batch = 8.0, .seconds = 1.0}, {.batch = 10.0, .seconds = 3.0}});
  EXPECT_EQ(curve.seconds(1.0), 1.0);
  EXPECT_EQ(curve.seconds(6.0), 1.0);
  EXPECT_EQ(curve.seconds(9.0), 2.0);
  EXPECT_EQ(curve.seconds(12.0), 5.0);  // one second per sample, as between 8 and 10
  EXPECT_EQ(curve.capacity(0.5), 0.0);
  EXPECT_EQ(curve.capacity(1.0), 8.0);  // the end of the plateau
  EXPECT_EQ(curve.capacity(2.0), 9.0);
  EXPECT_EQ(curve.capacity(5.0), 12.0);
}

TEST(CurveTest, TableOfOnePointGoesOnAlongTheLineThroughTheOrigin) {
  const Curve curve = Curve::table({{.batch = 4.0, .seconds = 2.0}});
  EXPECT_EQ(curve.seconds(1.0), 2.0);
  EXPECT_EQ(curve.seconds(10.0), 5.0);
  EXPECT_EQ(curve.capacity(5.0), 10.0);
}

TEST(CurveTest, CapacityIsInfiniteWhereTimeNeverGrows) {
  EXPECT_EQ(Curve().capacity(0.0), kInfinity);
  EXPECT_EQ(Curve::affine(2.0, 0.0).capacity(2.0), kInfinity);
  EXPECT_EQ(Curve::affine(2.0, 0.0).capacity(1.0), 0.0);
  EXPECT_EQ(Curve::table({{.batch = 1.0, .seconds = 2.0}, {.batch = 2.0, .seconds = 2.0}}).capacity(2.0), kInfinity);
}

TEST(CurveTest, ScaledTakesProportionallyLonger) {
  EXPECT_EQ(Curve::saturating(4.0, 1.0, 0.5, 0.25).scaled(2.0).seconds(4.0), 10.0);
  EXPECT_EQ(Curve::table({{.batch = 4.0, .seconds = 2.0}}).scaled(3.0).seconds(10.0), 15.0);
  EXPECT_THROW((void)Curve::linear(1.0).scaled(0.0), std::invalid_argument);
  EXPECT_THROW((void)Curve::linear(1.0).scaled(kInfinity), std::invalid_argument);
}

TEST(CurveTest, InUnitsTakesTheTimeOfThatManyUnits) {
  const Curve line = Curve::saturating(9.0, 1.0, 2.0, 0.5).in_units_of(4.0);
  EXPECT_DOUBLE_EQ(line.seconds(1.0), 11.0);  // 4 samples: the floor, 9 + 0.5 x 4, is above 1 + 2 x 4
  EXPECT_DOUBLE_EQ(line.seconds(3.0), 25.0);  // 12: 1 + 2 x 12 is above 9 + 0.5 x 12
  const Curve table = Curve::table({{.batch = 4.0, .seconds = 1.0}, {.batch = 8.0, .seconds = 3.0}}).in_units_of(4.0);
  EXPECT_DOUBLE_EQ(table.seconds(1.5), 2.0);  // 6 samples: half way
  EXPECT_THROW((void)line.in_units_of(0.0), std::invalid_argument);
}

TEST(CurveTest, RefusesWhatIsNoTimeCurve) {
  EXPECT_THROW((void)Curve::linear(-1.0), std::invalid_argument);
  EXPECT_THROW((void)Curve::affine(kInfinity, 1.0), std::invalid_argument);
  EXPECT_THROW((void)Curve::affine(0.0, std::nan("")), std::invalid_argument);
  EXPECT_THROW((void)Curve::saturating(-1.0, 0.0, 1.0), std::invalid_argument);
  EXPECT_THROW((void)Curve::saturating(1.0, 0.0, 1.0, -1.0), std::invalid_argument);
  EXPECT_THROW((void)Curve::table({}), std::invalid_argument);
  EXPECT_THROW((void)Curve::table({{.batch = 0.0, .seconds = 1.0}}), std::invalid_argument);
  EXPECT_THROW(
      (void)Curve::table({{.batch = 2.0, .seconds = 1.0}, {.batch = 2.0, .seconds = 2.0}}), std::invalid_argument);
  try {
    (void)Curve::table({{.batch = 2.0, .seconds = 3.0}, {.batch = 4.0, .seconds = 1.0}});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "a time curve's table has 1.000000 seconds after 3.000000; permitted: times that do not decrease");
  }
}

}  // namespace
}  // namespace isochron
