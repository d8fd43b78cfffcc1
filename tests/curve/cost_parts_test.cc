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

double ratio_of(const std::vector<CostParts>& workers) {
  std::vector<const CostParts*> pointers;
  pointers.reserve(workers.size());
  for (const CostParts& parts : workers) {
    pointers.push_back(&parts);
  }
  return pooled_ratio(pointers);
}

TEST(CostPartsTest, PartsPerStepPerSampleAndPerWorkAreToldApart) {
  const Truth truth{.per_step = 0.3, .per_sample = 0.05, .per_work = 0.1, .noise = 0.0};
  const std::vector workers{readings_of(truth, 300, 1)};
  const double ratio = ratio_of(workers);
  EXPECT_NEAR(ratio, 0.5, 0.02);
  const CostParts::Fit found = workers.front().fit({.per_sample = ratio}, 1e-6);
  EXPECT_NEAR(found.per_step, 0.3, 0.01);
  EXPECT_NEAR(found.per_work, 0.1, 0.001);
  EXPECT_LT(found.squares, 1e-3);
}

TEST(CostPartsTest, NoiseLeavesTheRatioNearTheTruth) {
  // 5 % noise, eight workers of a kind: a sample by itself costs half the mean sample's work.
  std::vector<CostParts> workers;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const double speed = 1.0 + static_cast<double>(seed);
    workers.push_back(readings_of(
        {.per_step = 0.3 * speed, .per_sample = 0.05 * speed, .per_work = 0.1 * speed, .noise = 0.05}, 200, seed));
  }
  EXPECT_NEAR(ratio_of(workers), 0.5, 0.15);
}

TEST(CostPartsTest, WhatCostsNothingPerSampleIsFoundToCostNothing) {
  std::vector<CostParts> workers;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    workers.push_back(readings_of({.per_step = 0.2, .per_work = 0.1, .noise = 0.05}, 200, seed));
    const CostParts::Fit found = workers.back().fit({}, 2.5e-3);
    EXPECT_GE(found.per_step, 0.0);
    EXPECT_GT(found.per_work, 0.0);
  }
  EXPECT_LT(ratio_of(workers), 0.1);
}

TEST(CostPartsTest, FewReadingsOfManyWorkersDoNotMakeUpACost) {
  // Estimates of single workers that are cut off at 0 would add up to 0.04 and more.
  std::vector<CostParts> workers;
  for (int readings = 1; readings <= 6; ++readings) {
    workers.clear();
    for (std::uint64_t seed = 0; seed < 256; ++seed) {
      workers.push_back(readings_of({.per_step = 0.05, .per_work = 0.1, .noise = 0.05}, readings, seed));
    }
    EXPECT_LT(ratio_of(workers), 0.02) << readings << " readings";
  }
}

TEST(CostPartsTest, NothingIsBelievedBeforeReadingsSayIt) {
  EXPECT_EQ(pooled_ratio({}), 0.0);
  EXPECT_EQ(ratio_of({CostParts()}), 0.0);
  CostParts same;  // always the same share: nothing can be told apart
  for (int n = 0; n < 50; ++n) {
    same.add(10.0, 10.0, 1.0);
  }
  EXPECT_GT(same.fit({}, 1e-2).per_work, 0.0);
  EXPECT_LT(ratio_of({same}), 0.1);
  CostParts one;
  one.add(10.0, 10.0, 1.0);
  EXPECT_LT(ratio_of({one}), 0.1);
}

TEST(CostPartsTest, AChangedWorkloadIsLearnedAnew) {
  CostParts parts = readings_of({.per_sample = 0.1, .per_work = 0.1}, 300, 1);
  EXPECT_GT(ratio_of({parts}), 0.8);
  Random random({8});
  for (int n = 0; n < 600; ++n) {
    const double samples = 8.0 + static_cast<double>(random.below(9));
    const double work = 12.0 * std::exp(0.12 * random.normal());
    parts.add(samples, work, 0.1 * work);
  }
  EXPECT_LT(ratio_of({parts}), 0.05);
}

TEST(CostPartsTest, AWorkerThatHasChangedIsToldFromNoise) {
  const CostParts parts = readings_of({.per_step = 0.2, .per_work = 0.1, .noise = 0.05}, 60, 1);
  const double usual = 0.2 + 0.1 * 12.0;
  EXPECT_FALSE(parts.contradict(12.0, 12.0, usual, 0.0, {}));
  EXPECT_FALSE(parts.contradict(12.0, 12.0, 1.1 * usual, 0.0, {}));
  EXPECT_FALSE(parts.contradict(6.0, 6.0, 0.2 + 0.1 * 6.0, 0.0, {}));  // half a share
  EXPECT_TRUE(parts.contradict(12.0, 12.0, 2.0 * usual, 0.0, {}));
  EXPECT_TRUE(parts.contradict(12.0, 12.0, 0.5 * usual, 0.0, {}));
  CostParts few;
  few.add(12.0, 12.0, usual);
  EXPECT_FALSE(few.contradict(12.0, 12.0, 2.0 * usual, 0.0, {}));
}

TEST(CostPartsTest, SquaresAreToldFromSamplesAndWork) {
  // A sample by itself costs half the mean sample's work, the mean square twice of it.
  std::vector<CostParts> workers(4);
  for (std::size_t k = 0; k < workers.size(); ++k) {
    Random random({11, k});
    for (int n = 0; n < 200; ++n) {
      const double samples = 8.0 + static_cast<double>(random.below(9));
      const double work = 12.0 * std::exp(0.12 * random.normal());
      const double squares = 12.0 * std::exp(0.4 * random.normal());
      const double seconds = static_cast<double>(k + 1) * (0.1 * work + 0.2 * squares + 0.05 * samples);
      workers[k].add(samples, work, seconds * std::exp(0.03 * random.normal()), squares);
    }
  }
  CostRatios found;
  for (int turn = 0; turn < 30; ++turn) {
    std::vector<KnownParts> known;
    std::vector<const CostParts*> pointers;
    for (const CostParts& parts : workers) {
      known.push_back({.parts = &parts, .ratios = found});
      pointers.push_back(&parts);
    }
    found.per_square = pooled_square_ratio(known);
    found.per_sample = pooled_ratio(pointers, found.per_square);
  }
  EXPECT_NEAR(found.per_square, 2.0, 0.3);
  EXPECT_NEAR(found.per_sample, 0.5, 0.25);
  EXPECT_EQ(pooled_square_ratio({}), 0.0);
}

TEST(CostPartsTest, ARestoredStateEstimatesTheSame) {
  CostParts parts = readings_of({.per_step = 0.3, .per_sample = 0.05, .per_work = 0.1, .noise = 0.05}, 40, 3);
  CostParts restored;
  restore_state(restored, save_state(parts));
  EXPECT_EQ(ratio_of({restored}), ratio_of({parts}));
  EXPECT_EQ(save_state(restored), save_state(parts));
}

}  // namespace
}  // namespace isochron
