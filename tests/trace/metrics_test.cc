#include "isochron/core/trace/metrics.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace isochron {
namespace {

StepRecord three_workers() {
  return {
      .seconds = 4.0,
      .workers = {
          {.batch = 30, .compute_seconds = 1.0},
          {.batch = 0, .compute_seconds = 0.5},  // idle
          {.batch = 10, .compute_seconds = 2.0}}};
}

TEST(MetricsTest, BalanceIsMeanOverLongestOfThoseThatComputed) {
  EXPECT_EQ(balance(three_workers().workers), 0.75);  // (1 + 2) / 2 over 2
}

TEST(MetricsTest, UtilizationIsTheTimeWithoutAnyWaitOverTheTimeTaken) {
  // 30 and 5 samples a second: 40 samples take 40 / 35 s, and took 4 s.
  EXPECT_DOUBLE_EQ(utilization(three_workers()), 40.0 / 35.0 / 4.0);
}

TEST(MetricsTest, TimesThatAreNoTimesDoNotCount) {
  StepRecord record = three_workers();
  record.workers[0].compute_seconds = std::numeric_limits<double>::infinity();
  EXPECT_EQ(balance(record.workers), 1.0);
  EXPECT_DOUBLE_EQ(utilization(record), 10.0 / 5.0 / 4.0);
  record.workers[2].compute_seconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(balance(record.workers)));
  EXPECT_TRUE(std::isnan(utilization(record)));
}

TEST(MetricsTest, AStepWithoutALengthHasNoUtilization) {
  StepRecord record = three_workers();
  record.seconds = 0.0;
  EXPECT_TRUE(std::isnan(utilization(record)));
}

}  // namespace
}  // namespace isochron
