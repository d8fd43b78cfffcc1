#include "isochron/core/trace/run_meter.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace isochron {
namespace {

TEST(QuantilesTest, AreValuesThatOccurred) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) {
    values.push_back(i);
  }
  const Quantiles hundred = quantiles(values);
  EXPECT_EQ(hundred.p50, 50);
  EXPECT_EQ(hundred.p90, 90);
  EXPECT_EQ(hundred.p99, 99);
  EXPECT_EQ(hundred.mean, 50.5);
  EXPECT_EQ(quantiles({3.0}).p99, 3);
  EXPECT_EQ(quantiles({}).mean, 0);
}

TEST(RunMeterTest, GathersSpeedAndBalance) {
  RunMeter meter;
  EXPECT_TRUE(std::isnan(meter.samples_per_second()));
  EXPECT_TRUE(std::isnan(meter.balance()));
  const auto step = [](double seconds, double first, double second) {
    return StepRecord{
        .seconds = seconds,
        .workers = {{.batch = 30, .compute_seconds = first}, {.batch = 10, .compute_seconds = second}}};
  };
  meter.add(step(2.0, 2.0, 1.0));  // balance 1.5 / 2
  meter.add(step(3.0, 1.0, 1.0));  // 1
  EXPECT_EQ(meter.steps(), 2);
  EXPECT_EQ(meter.samples_per_second(), 80.0 / 5.0);
  EXPECT_EQ(meter.balance(), 0.875);
  EXPECT_EQ(meter.step_seconds().p50, 2.0);
  meter.add(step(std::numeric_limits<double>::infinity(), 1.0, 2.0));
  EXPECT_EQ(meter.steps(), 2);
}

TEST(RunMeterTest, CountsTheTimeInWhichAnyWorkerIsAtWorkAndItsStaleness) {
  RunMeter meter;
  const auto update = [](WorkerId id, double start, double seconds, std::int64_t staleness) {
    return UpdateRecord{
        .seconds = seconds, .worker = {.id = id, .batch = 10, .start_seconds = start}, .staleness = staleness};
  };
  meter.add(update(0, 0.0, 1.0, 0));
  meter.add(update(0, 1.0, 1.0, 0));
  meter.add(update(1, 0.0, 2.5, 2));                // 0.5 s more; balance (1 + 2.5) / 5
  meter.add(update(0, 10.0, 2.5, 1));               // after a pause; balance 1
  EXPECT_EQ(meter.last().samples_per_second, 8.0);  // 10 samples in 2.5 s, twice
  EXPECT_EQ(meter.seconds(), 5.0);
  EXPECT_EQ(meter.samples_per_second(), 8.0);
  EXPECT_DOUBLE_EQ(meter.balance(), (1.0 + 1.0 + 0.7 + 1.0) / 4.0);
  EXPECT_EQ(meter.staleness().total(), 4);
  EXPECT_EQ(meter.staleness().mean(), 0.75);
  EXPECT_EQ(meter.staleness().max(), 2);
}

TEST(RunMeterTest, CountsAWorkerThatIsGoneNoLonger) {
  RunMeter meter;
  const auto update = [](WorkerId id, double start, double seconds) {
    return UpdateRecord{.seconds = seconds, .worker = {.id = id, .batch = 10, .start_seconds = start}};
  };
  meter.add(update(0, 0.0, 1.0));
  meter.add(update(1, 0.0, 4.0));
  EXPECT_EQ(meter.last().samples_per_second, 12.5);  // 10 in 1 s and 10 in 4 s
  meter.add(EventRecord{.event = "stall", .worker = 1});
  meter.add(update(0, 4.0, 1.0));
  EXPECT_EQ(meter.last().samples_per_second, 12.5);  // it may answer again
  meter.add(EventRecord{.event = "death", .worker = 1});
  meter.add(update(0, 5.0, 1.0));
  EXPECT_EQ(meter.last().samples_per_second, 10.0);
  EXPECT_EQ(meter.last().balance, 1.0);  // nobody waits for one that is gone
}

}  // namespace
}  // namespace isochron
