#include "isochron/core/random/random.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "isochron/core/random/normal.h"

namespace isochron {
namespace {

TEST(RandomTest, GivesTheSameNumbersOnEveryPlatform) {
  // The first outputs of SplitMix64 from state 0, as published with the algorithm.
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafU);
  EXPECT_EQ(mix64(0x9e3779b97f4a7c15U), 0x6e789e6aa1b965f4U);
}

TEST(RandomTest, DependsOnEveryWordOfTheKeyAndOnTheirOrder) {
  EXPECT_EQ(Random({1, 2, 3}).next(), Random({1, 2, 3}).next());
  EXPECT_NE(Random({1, 2, 3}).next(), Random({1, 2, 4}).next());
  EXPECT_NE(Random({1, 2, 3}).next(), Random({2, 1, 3}).next());
  EXPECT_NE(Random({1, 2}).next(), Random({1, 2, 0}).next());
}

TEST(RandomTest, BelowIsUniform) {
  Random random({7});
  std::array<int, 6> seen{};
  for (int i = 0; i < 60000; ++i) {
    ++seen.at(random.below(6));
  }
  // 10,000 expected with a standard deviation of sqrt(60000 * 1/6 * 5/6) = 91; 5 of them is a generous margin.
  for (const int count : seen) {
    EXPECT_NEAR(count, 10000, 455);
  }
}

TEST(RandomTest, NormalHasMeanZeroAndVarianceOne) {
  Random random({11});
  double sum = 0.0;
  double squares = 0.0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 5.0 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0, 5.0 * std::sqrt(2.0 / kDraws));
}

TEST(NormalTest, QuantileInvertsTheDistributionFunction) {
  for (double p = 1e-12; p < 1.0; p = p < 0.5 ? p * 1.7 : p + 0.01) {
    const double x = normal_quantile(p);
    EXPECT_NEAR(normal_cdf(x) / p, 1.0, 1e-12) << p;
  }
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-15);
  EXPECT_EQ(normal_quantile(0.0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(normal_quantile(1.0), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace isochron
