#include "isochron/core/curve/cost_parts.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

struct Truth {
  double per_step = 0.0;
  double per_sample = 0.0;
  double per_work = 0.0;
  double noise = 0.0;
};

/// Readings of shares of about 12 samples, as a deal gives them: their works hardly vary, their numbers do.
CostParts readings_of(const Truth& truth, int readings, std::uint64_t seed) {
  Random random({7, seed});
  CostParts parts;
  for (int n = 0; n < readings; ++n) {
    const double samples = 8.0 + static_cast<double>(random.below(9));
    const double work = 12.0 * std::exp(0.12 * random.normal());
    const double seconds = truth.per_step + truth.per_sample * samples + truth.per_work * work;
    parts.add(samples, work, seconds * std::exp(truth.noise * random.normal()));
  }
  return parts;
}

TEST(CostPartsTest, PartsPerStepPerSampleAndPerWorkAreToldApart) {
  const Truth truth{.per_step = 0.3, .per_sample = 0.05, .per_work = 0.1, .noise = 0.0};
  const CostParts::Estimate found = readings_of(truth, 300, 1).estimate();
  EXPECT_NEAR(found.per_step, 0.3, 0.01);
  EXPECT_NEAR(found.per_sample, 0.05, 0.001);
  EXPECT_NEAR(found.per_work, 0.1, 0.001);
  EXPECT_LT(found.ratio_variance, 1e-4);
}

TEST(CostPartsTest, NoiseLeavesTheRatioNearTheTruth) {
  // 5 % noise, eight workers of a kind: a sample by itself costs half the mean sample's work.
  std::vector<CostParts::Estimate> workers;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const double speed = 1.0 + static_cast<double>(seed);
    workers.push_back(
        readings_of(
            {.per_step = 0.3 * speed, .per_sample = 0.05 * speed, .per_work = 0.1 * speed, .noise = 0.05}, 200, seed)
            .estimate());
  }
  EXPECT_NEAR(pooled_ratio(workers), 0.5, 0.15);
}

TEST(CostPartsTest, WhatCostsNothingPerSampleIsFoundToCostNothing) {
  std::vector<CostParts::Estimate> workers;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    workers.push_back(readings_of({.per_step = 0.2, .per_work = 0.1, .noise = 0.05}, 200, seed).estimate());
    EXPECT_GE(workers.back().per_sample, 0.0);
    EXPECT_GE(workers.back().per_step, 0.0);
    EXPECT_GT(workers.back().per_work, 0.0);
  }
  EXPECT_LT(pooled_ratio(workers), 0.1);
}

TEST(CostPartsTest, NothingIsBelievedBeforeReadingsSayIt) {
  EXPECT_EQ(pooled_ratio({}), 0.0);
  EXPECT_EQ(pooled_ratio(std::vector{CostParts().estimate()}), 0.0);
  CostParts same;  // always the same share: nothing can be told apart
  for (int n = 0; n < 50; ++n) {
    same.add(10.0, 10.0, 1.0);
  }
  EXPECT_GT(same.estimate().per_work, 0.0);
  EXPECT_LT(pooled_ratio(std::vector{same.estimate()}), 1.0);
  CostParts one;
  one.add(10.0, 10.0, 1.0);
  EXPECT_LT(pooled_ratio(std::vector{one.estimate()}), 1.0);
}

TEST(CostPartsTest, AChangedWorkloadIsLearnedAnew) {
  CostParts parts = readings_of({.per_sample = 0.1, .per_work = 0.1}, 300, 1);
  Random random({8});
  for (int n = 0; n < 600; ++n) {
    const double samples = 8.0 + static_cast<double>(random.below(9));
    const double work = 12.0 * std::exp(0.12 * random.normal());
    parts.add(samples, work, 0.1 * work);
  }
  EXPECT_LT(parts.estimate().per_sample / parts.estimate().per_work, 0.05);
}

TEST(CostPartsTest, ARestoredStateEstimatesTheSame) {
  CostParts parts = readings_of({.per_step = 0.3, .per_sample = 0.05, .per_work = 0.1, .noise = 0.05}, 40, 3);
  CostParts restored;
  restore_state(restored, save_state(parts));
  EXPECT_EQ(restored.estimate().per_sample, parts.estimate().per_sample);
  EXPECT_EQ(save_state(restored), save_state(parts));
}

}  // namespace
}  // namespace isochron
