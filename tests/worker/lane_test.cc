#include "isochron/worker/lane.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::worker {
namespace {

TEST(LaneTest, ReadsPoliciesWithTheirOptionsAndWhatDiffers) {
  const auto lanes = parse_lanes("uniform,omnilearn:dead-band=0.1,ewma=0.2+mean,isochron+exact+linear,oracle", {});
  ASSERT_EQ(lanes.size(), 4);
  EXPECT_EQ(lanes[0].policy, "uniform");
  EXPECT_EQ(lanes[0].weighting, Weighting::kExact);
  EXPECT_EQ(lanes[1].policy, "omnilearn:dead-band=0.1,ewma=0.2");
  EXPECT_EQ(lanes[1].weighting, Weighting::kMean);
  EXPECT_EQ(lanes[1].label, "omnilearn:dead-band=0.1,ewma=0.2+mean");
  EXPECT_EQ(lanes[2].policy, "isochron");
  EXPECT_EQ(lanes[2].rate, RateRule::kLinear);
  EXPECT_EQ(lanes[3].policy, "oracle");
}

TEST(LaneTest, TakesDefaultsFromTheCaller) {
  const auto lanes = parse_lanes("uniform,uniform+exact", {.weighting = Weighting::kMean, .rate = RateRule::kSqrt});
  EXPECT_EQ(lanes[0].weighting, Weighting::kMean);
  EXPECT_EQ(lanes[1].weighting, Weighting::kExact);
  EXPECT_EQ(lanes[1].rate, RateRule::kSqrt);
}

TEST(LaneTest, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW((void)parse_lanes("uniform+fast", {}), std::invalid_argument);
  EXPECT_THROW((void)parse_lanes("swift", {}), std::invalid_argument);
  EXPECT_THROW((void)parse_lanes("uniform,uniform", {}), std::invalid_argument);
  EXPECT_THROW((void)parse_lanes("isochron,", {}), std::invalid_argument);
}

}  // namespace
}  // namespace isochron::worker
