// Local rounds: they end together, and cost an exchange each.
#include <string>
#include <vector>

#include "small_cluster.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/sim/builtin.h"

namespace isochron::sim {
namespace {

using ::testing::ElementsAre;

TEST(LocalTest, ARoundIsAsLongAsItsSlowestWorkerAndOneExchange) {
  ClusterSpec cluster = small_cluster({1, 3});
  cluster.workers[0].link.bytes_per_second = 10.0;
  const Options options{
      .global_batch = 8,
      .steps = 10,
      .sync = Sync::kLocal,
      .round_steps = 4,
      .network = {.gradient_bytes = 20.0, .buckets = 1}};
  const auto records = records_of(cluster, options, "uniform");
  // Rounds of 4, 4 and 2 batches; 4 samples a step, so 4 s on the slower worker. The ring of two takes 2 s.
  ASSERT_EQ(records.size(), 3U);
  EXPECT_DOUBLE_EQ(records[0].seconds, 18.0);
  EXPECT_DOUBLE_EQ(records[1].start_seconds, 18.0);
  EXPECT_EQ(records[1].position, 32);
  EXPECT_DOUBLE_EQ(records[2].seconds, 10.0);
  EXPECT_EQ(records[2].workers[0].batch, 8);
  EXPECT_DOUBLE_EQ(records[1].workers[1].wait_seconds, 16.0 - 16.0 / 3.0);
  EXPECT_DOUBLE_EQ(records[1].workers[1].exchange_seconds, 2.0);
  const Result result = simulate(cluster, options, "uniform");
  EXPECT_EQ(result.steps, 3);
  EXPECT_DOUBLE_EQ(result.samples_per_second, 80.0 / 46.0);
}

TEST(LocalTest, ARoundIsDoneAgainWithoutAWorkerThatIsKilledInIt) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.changes = {at_seconds(20.0, "w1", Event::kKill)};
  const Options options{.global_batch = 8, .steps = 8, .sync = Sync::kLocal, .round_steps = 4, .failure_seconds = 0.5};
  // 16 s for the first round; 4 s into the second it is lost, and 32 samples take one worker 32 s.
  EXPECT_DOUBLE_EQ(simulate(cluster, options, "uniform").total_seconds, 16.0 + 4.0 + 0.5 + 32.0);
}

// The goal: at most 5 % of the workers' time is spent waiting for the slowest. With as many equal steps on all of them,
// as in DiLoCo and local SGD, more than half of what the cluster could do is lost.
TEST(LocalTest, RoundsEndTogetherOnUnequalWorkers) {
  for (const char* const name : {"hl8", "dynamic"}) {
    const ClusterSpec cluster = noisy(builtin_cluster(name, 2000), 0.05);
    const Options options{.global_batch = 128, .steps = 2000, .sync = Sync::kLocal, .round_steps = 20};
    EXPECT_GT(simulate(cluster, options, "isochron").balance, 0.95) << name;
  }
  const ClusterSpec hl8 = noisy(builtin_cluster("hl8", 2000), 0.05);
  const Options options{.global_batch = 128, .steps = 2000, .sync = Sync::kLocal, .round_steps = 20};
  EXPECT_LT(simulate(hl8, options, "uniform").share_of_peak, 0.5);
  EXPECT_GT(simulate(hl8, options, "isochron").share_of_peak, 0.9);
}

// 1 MB over 100 Mbit/s takes four steps of hl8.
TEST(LocalTest, TheLengthOfARoundIsChosenForTheNetwork) {
  ClusterSpec cluster = builtin_cluster("hl8", 4000);
  for (WorkerSpec& worker : cluster.workers) {
    worker.link.bytes_per_second = 12.5e6;
  }
  const Network network{.gradient_bytes = 1e6};
  const Options local{.global_batch = 128, .steps = 4000, .sync = Sync::kLocal, .network = network};
  const Options free{.global_batch = 128, .steps = 4000};
  const Options bsp{.global_batch = 128, .steps = 4000, .network = network};
  const double unlimited = simulate(cluster, free, "isochron").samples_per_second;
  const double rounds = simulate(cluster, local, "isochron").samples_per_second;
  EXPECT_GT(rounds, 0.85 * unlimited);
  EXPECT_GT(rounds, 2.5 * simulate(cluster, bsp, "uniform").samples_per_second);
}

}  // namespace
}  // namespace isochron::sim
