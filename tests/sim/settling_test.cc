// Workers whose first step with a batch size costs more, as on GPUs, and workers that cost more than they bring: what
// the isochron policy makes of them.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "small_cluster.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/sim/builtin.h"

namespace isochron::sim {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kRuns = 8;

/// Seconds of the steps from `first` on.
double seconds_from(const std::vector<StepRecord>& records, std::size_t first) {
  return std::accumulate(
      records.begin() + static_cast<std::ptrdiff_t>(first), records.end(), 0.0, [](double sum, const StepRecord& step) {
        return sum + step.seconds;
      });
}

std::int64_t count_changes(const std::vector<StepRecord>& records) {
  return std::ranges::count_if(records, &StepRecord::changed);
}

std::int64_t batch_of(const StepRecord& step, std::size_t worker) {
  return step.workers.at(worker).batch;
}

TEST(SettlingTest, IsAtTheOracleThoughEverySizeCostsAGpuAThirdOfAStepOnce) {
  const ClusterSpec cluster = builtin_cluster("gpu-shares", 60);
  double whole = 0.0;
  double late = 0.0;
  for (std::uint64_t seed = 0; seed < kRuns; ++seed) {
    const Options options{.global_batch = 256, .steps = 60, .seed = seed};
    const auto mine = records_of(cluster, options, "isochron");
    const auto best = records_of(cluster, options, "oracle");
    whole += seconds_from(best, 1) / seconds_from(mine, 1) / kRuns;
    late += seconds_from(best, 10) / seconds_from(mine, 10) / kRuns;
  }
  // One step with equal shares, 1.0 steps too long, and two new sizes, 0.34 steps each: 1.7 of 59 steps.
  EXPECT_GT(whole, 0.97);
  EXPECT_GT(late, 0.995);
}

TEST(SettlingTest, DoesNotPayForNewSizesOverAndOver) {
  for (std::uint64_t seed = 0; seed < kRuns; ++seed) {
    const Options options{.global_batch = 256, .steps = 200, .seed = seed};
    EXPECT_LE(count_changes(records_of(builtin_cluster("gpu-shares", 200), options, "isochron")), 4) << seed;
  }
}

TEST(SettlingTest, MovesOnceWhereANewSizeIsCompiledForSeconds) {
  ClusterSpec cluster = builtin_cluster("gpu-shares", 100);
  for (WorkerSpec& worker : cluster.workers) {
    worker.cold_seconds = 5.0;
  }
  // 5 s are 34 steps: nothing that is left to gain after the first move pays for another within 100 steps.
  EXPECT_EQ(count_changes(records_of(cluster, {.global_batch = 256, .steps = 100}, "isochron")), 1);
}

TEST(SettlingTest, GoesBackToASplitThatWasUsedWhereANewOneDoesNotPay) {
  // The first worker slows down to a fifth of its speed and recovers. A new size costs a minute, hundreds of steps;
  // equal shares, with which the run began, and the split of before cost nothing.
  ClusterSpec cluster = builtin_cluster("gpu-shares", 200);
  for (WorkerSpec& worker : cluster.workers) {
    worker.cold_seconds = 60.0;
  }
  cluster.changes = {
      {.at_step = 60, .worker = "gpu-75", .cores = 0.66}, {.at_step = 120, .worker = "gpu-75", .cores = 3.3}};
  const auto records = records_of(cluster, {.global_batch = 256, .steps = 200}, "isochron");
  EXPECT_GT(batch_of(records[59], 0), 190);
  EXPECT_EQ(batch_of(records[119], 0), 128);
  EXPECT_EQ(batch_of(records[199], 0), batch_of(records[59], 0));
}

TEST(SettlingTest, ColdStepsAreLongerOnceForEveryWorkerAndSize) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.workers[1].cold_seconds = 7.0;
  const auto records = records_of(cluster, {.global_batch = 4, .steps = 3}, "uniform");
  EXPECT_EQ(records[0].seconds, 9.0);
  EXPECT_EQ(records[1].seconds, 2.0);
  EXPECT_EQ(records[2].seconds, 2.0);
}

/// A GPU that does 256 samples in 2.56 s, and a CPU that needs 61 s for one.
ClusterSpec gpu_and_burden(std::int64_t min_batch) {
  ClusterSpec cluster = small_cluster({100, 1});
  cluster.workers[1].overhead = 60.0;
  cluster.workers[1].min_batch = min_batch;
  return cluster;
}

TEST(SettlingTest, SaysThatItPaysToLeaveOutAWorkerThatHoldsUpTheOthersWithOneSample) {
  const auto records = records_of(gpu_and_burden(1), {.global_batch = 256, .steps = 10}, "isochron");
  EXPECT_EQ(batch_of(records[9], 1), 1);
  // 2.56 s instead of 61.
  EXPECT_THAT(records[9].words, HasSubstr("without w1 a step would be 95.8 % shorter: it pays to leave it out"));
  const auto balanced = records_of(small_cluster({3, 1}), {.global_batch = 256, .steps = 10}, "isochron");
  EXPECT_THAT(balanced[9].words, testing::Not(HasSubstr("leave it out")));
}

TEST(SettlingTest, LeavesOutAWorkerThatMayHaveNoSamplesAndMeasuresItAgain) {
  ClusterSpec cluster = gpu_and_burden(0);
  // A step with it costs 24 steps, so it is tried after 50 x 24 of them.
  cluster.changes = {{.at_step = 500, .worker = "w1", .cores = 100.0}};
  const auto records = records_of(cluster, {.global_batch = 256, .steps = 1500}, "isochron");
  EXPECT_EQ(batch_of(records[10], 1), 0);
  const auto probe = std::ranges::find(records, Reason::kProbing, &StepRecord::reason);
  ASSERT_NE(probe, records.end());
  EXPECT_GT(probe->step, 1000);
  EXPECT_EQ(batch_of(*probe, 1), 1);
  // As fast as the other one, but for 60 samples a step: 158 and 98.
  EXPECT_NEAR(static_cast<double>(batch_of(records[1499], 1)), 98.0, 3.0);
}

}  // namespace
}  // namespace isochron::sim
