#include "isochron/baselines/narx.h"

#include <cmath>

#include "tests/predict/series.h"
#include <gtest/gtest.h>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

/// A co-tenant that takes 40 % of the CPU for 20 of every 40 steps, 5 % noise.
std::vector<SeriesStep> interference(std::size_t steps) {
  Random random({31});
  std::vector<SeriesStep> series;
  for (std::size_t k = 0; k < steps; ++k) {
    const double cpu = (k / 20) % 2 == 0 ? 1.0 : 0.6;
    series.push_back({100.0 * cpu * (1.0 + 0.05 * random.normal()), {.cpu = cpu, .memory = 0.5}});
  }
  return series;
}

TEST(NarxTest, ForeseesInterferenceThatShowsInTheCpuSignal) {
  // The noise itself is 0.05^2 = 0.0025. The last speed adds the same noise again and the jumps, one step in 20 of
  // 40 % or 67 %: (0.4^2 + 0.67^2) / 40 = 0.015 on top. A network that reads the CPU signal must come near the noise.
  const auto series = interference(1500);
  Narx narx;
  const double error = error_of(narx, series, 500);
  EXPECT_LT(error, 2.0 * 0.0025);
  EXPECT_GT(error_of({.kind = "memoryless"}, series, 500), 4.0 * error);
  EXPECT_GT(error_of({.kind = "ewma"}, series, 500), 4.0 * error);
}

TEST(NarxTest, AveragesPlainNoise) {
  // The last speed errs by 2 x 0.0025; a perfect average by half of that.
  Random random({32});
  std::vector<SeriesStep> series;
  for (int k = 0; k < 1500; ++k) {
    series.push_back({100.0 * (1.0 + 0.05 * random.normal()), {}});
  }
  Narx narx;
  EXPECT_LT(error_of(narx, series, 300), 0.6 * 2.0 * 0.0025);
}

TEST(NarxTest, PredictsTheLastSpeedUntilItIsWarm) {
  Narx narx;
  Random random({33});
  for (int k = 0; k < 19; ++k) {  // 4 speeds fill its inputs, 16 examples warm it up
    const double speed = 100.0 + random.uniform();
    narx.observe(speed, {});
    ASSERT_EQ(narx.predict({}), speed) << k;
  }
  narx.observe(100.0, {});
  EXPECT_NE(narx.predict({}), 100.0);
}

TEST(NarxTest, StaysInTheBandAroundRecentSpeeds) {
  Narx narx;
  for (const auto& [speed, usage] : interference(500)) {
    narx.observe(speed, usage);
  }
  for (int k = 0; k < 32; ++k) {
    narx.observe(1000.0, {.cpu = 1.0, .memory = 0.5});
  }
  EXPECT_GE(narx.predict({.cpu = 0.0, .memory = 1.0}), 500.0);
  EXPECT_LE(narx.predict({.cpu = 1.0, .memory = 0.0}), 2000.0);
}

TEST(NarxTest, TakesUnknownUsageForTheUsualOne) {
  Narx narx;
  for (const auto& [speed, usage] : interference(501)) {
    narx.observe(speed, usage);
  }
  for (int k = 0; k < 200; ++k) {
    narx.observe(100.0, {.cpu = 1.0, .memory = 0.5});
  }
  // The level of both signals has arrived at 1.0 and 0.5.
  EXPECT_NEAR(narx.predict({}), narx.predict({.cpu = 1.0, .memory = 0.5}), 1e-9);
}

}  // namespace
}  // namespace isochron
