#include "isochron/core/telemetry.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace isochron {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Roster two_workers() {
  return {.workers = {{.id = 10}, {.id = 20}}, .global_batch = 8};
}

WorkerTelemetry report(WorkerId worker, std::int64_t batch, double seconds) {
  return {.worker = worker, .batch = batch, .seconds = seconds};
}

TEST(TelemetryTest, AlignsReportsOfAnyOrderWithTheRoster) {
  const auto readings = align({.workers = {report(20, 5, 0.5), report(10, 3, 0.3)}}, two_workers());
  ASSERT_EQ(readings.size(), 2U);
  EXPECT_TRUE(readings[0].valid);
  EXPECT_EQ(readings[0].batch, 3);
  EXPECT_EQ(readings[1].batch, 5);
  EXPECT_EQ(readings[1].seconds, 0.5);
}

TEST(TelemetryTest, GivesTheSameReadingsForReportsInTheRostersOrder) {
  const auto readings = align({.workers = {report(10, 3, 0.3), report(20, 5, 0.5)}}, two_workers());
  ASSERT_EQ(readings.size(), 2U);
  EXPECT_EQ(readings[0].batch, 3);
  EXPECT_EQ(readings[1].batch, 5);
}

TEST(TelemetryTest, LeavesAMissingWorkerInvalidAndIgnoresStrangers) {
  const auto readings = align({.workers = {report(20, 5, 0.5), report(99, 7, 0.7)}}, two_workers());
  ASSERT_EQ(readings.size(), 2U);
  EXPECT_FALSE(readings[0].valid);
  EXPECT_EQ(readings[0].batch, 0);
  EXPECT_TRUE(std::isnan(readings[0].seconds));
  EXPECT_EQ(readings[1].batch, 5);
}

TEST(TelemetryTest, TakesTheLastOfTwoReportsOfOneWorker) {
  const auto readings = align({.workers = {report(10, 3, 0.3), report(20, 5, 0.5), report(10, 4, 0.4)}}, two_workers());
  EXPECT_EQ(readings[0].batch, 4);
}

TEST(TelemetryTest, RefusesReadingsThatAreNotPositiveAndFinite) {
  for (const auto& bad :
       {report(10, 0, 0.3),
        report(10, -3, 0.3),
        report(10, 3, 0.0),
        report(10, 3, -1.0),
        report(10, 3, kInfinity),
        report(10, 3, kUnknown)}) {
    const auto readings = align({.workers = {bad, report(20, 5, 0.5)}}, two_workers());
    EXPECT_FALSE(readings[0].valid) << bad.batch << " samples in " << bad.seconds << " s";
    EXPECT_EQ(readings[0].batch, 0);
    EXPECT_TRUE(std::isnan(readings[0].seconds));
    EXPECT_TRUE(readings[1].valid);
  }
}

TEST(TelemetryTest, ClampsSharesAndKeepsUnknownOnes) {
  WorkerTelemetry first = report(10, 3, 0.3);
  first.usage.cpu = 1.5;
  first.usage.memory = -0.5;
  WorkerTelemetry second = report(20, 5, 0.5);
  second.usage.cpu = kInfinity;
  const auto readings = align({.workers = {first, second}}, two_workers());
  EXPECT_EQ(readings[0].usage.cpu, 1.0);
  EXPECT_EQ(readings[0].usage.memory, 0.0);
  EXPECT_TRUE(std::isnan(readings[1].usage.cpu));
  EXPECT_TRUE(std::isnan(readings[1].usage.memory));
}

}  // namespace
}  // namespace isochron
