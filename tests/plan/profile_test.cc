#include "isochron/plan/profile.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "machines.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::plan {
namespace {

TEST(ProfileTest, CurveGoesThroughTheMediansAndNeverDown) {
  Profile profile = small_profile(1.0, 0.5);
  EXPECT_DOUBLE_EQ(profile.curve().seconds(4), 3.0);
  EXPECT_DOUBLE_EQ(profile.curve().seconds(6), 4.0);
  EXPECT_NEAR(profile.fit().line.fixed, 1.0, 1e-9);
  EXPECT_NEAR(profile.fit().line.slope, 0.5, 1e-9);
  profile.points[3].p50_seconds = 1.0;  // noise: 8 samples faster than 4
  EXPECT_LE(profile.curve().seconds(4), profile.curve().seconds(8));
}

TEST(ProfileTest, NoiseIsThatOfTheLargerHalf) {
  Profile profile = small_profile(1.0, 0.5);
  EXPECT_DOUBLE_EQ(profile.noise(), 0.0);
  profile.points[0].p90_seconds *= 100.0;
  EXPECT_DOUBLE_EQ(profile.noise(), 0.0);
  for (std::size_t i = 3; i < profile.points.size(); ++i) {  // 4 of 7
    profile.points[i].p90_seconds = profile.points[i].p50_seconds * std::exp(0.1 * 1.2815515655446004);
  }
  EXPECT_NEAR(profile.noise(), 0.1, 1e-12);
}

TEST(ProfileTest, MemoryBoundsTheBatch) {
  const Profile profile = small_profile(1.0, 0.5);  // 100 + b bytes
  EXPECT_EQ(profile.batch_for_memory(100.5), 0);
  EXPECT_EQ(profile.batch_for_memory(120.0), 20);
  EXPECT_EQ(profile.batch_for_memory(1100.0), 1000);  // beyond the last point by its slope
  Profile unknown = profile;
  for (ProfilePoint& point : unknown.points) {
    point.bytes = 0.0;
  }
  EXPECT_EQ(unknown.batch_for_memory(1.0), kNoLimit);
}

TEST(ProfileTest, RefusesWhatCannotBe) {
  const auto refusal = [](const auto& change) -> std::string {
    Profile profile = small_profile(1.0, 0.5);
    change(profile);
    try {
      profile.validate();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](Profile&) {}), "");
  EXPECT_EQ(refusal([](Profile& p) { p.points.clear(); }), "the number of points is 0; permitted: 1 or more");
  EXPECT_EQ(
      refusal([](Profile& p) { p.points[1].batch = 1; }),
      "batch is 1; permitted: 1 or more, and more than the one before");
  EXPECT_EQ(refusal([](Profile& p) { p.points[0].p50_seconds = 0.0; }), "p50 is 0; permitted: a finite number above 0");
  EXPECT_EQ(
      refusal([](Profile& p) { p.points[0].p90_seconds = 0.5; }),
      "p90 is 0.5; permitted: a finite number, p50 or more");
  EXPECT_EQ(refusal([](Profile& p) { p.cores = 0.0; }), "cores is 0; permitted: a finite number above 0");
  EXPECT_EQ(
      refusal([](Profile& p) { p.update_seconds = -1.0; }),
      "update_seconds is -1; permitted: a finite number, 0 or more");
}

}  // namespace
}  // namespace isochron::plan
