#include "isochron/emulate/quota.h"

#include <gtest/gtest.h>

namespace isochron::emulate {
namespace {

TEST(QuotaTest, GivesTheShareOfThePeriod) {
  EXPECT_EQ(quota_for(0.1875, 10'000), (Quota{.microseconds = 1'875, .period = 10'000}));
  EXPECT_EQ(quota_for(1.5, 10'000), (Quota{.microseconds = 15'000, .period = 10'000}));
}

TEST(QuotaTest, LengthensThePeriodWhereTheKernelWouldRefuse) {
  EXPECT_EQ(period_for(0.125, 10'000), 10'000);
  EXPECT_EQ(period_for(0.1, 10'000), 10'000);
  EXPECT_EQ(period_for(0.01, 10'000), 100'000);  // 1 ms is a hundredth of 100 ms
  EXPECT_EQ(period_for(kFewestCores, 10'000), kLongestPeriod);
}

TEST(QuotaTest, NeverFallsBelowWhatTheKernelTakes) {
  for (double cores = kFewestCores; cores < 2.0; cores *= 1.01) {
    const Quota quota = quota_for(cores, period_for(cores, 10'000));
    EXPECT_GE(quota.microseconds, kShortestQuota) << cores;
    EXPECT_LE(quota.period, kLongestPeriod) << cores;
    EXPECT_NEAR(
        static_cast<double>(quota.microseconds) / static_cast<double>(quota.period), cores, 0.001 * cores + 5e-5);
  }
}

}  // namespace
}  // namespace isochron::emulate
