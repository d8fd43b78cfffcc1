#include <map>
#include <stdexcept>

#include "small_cluster.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/sim/builtin.h"

namespace isochron::sim {
namespace {

using ::testing::ElementsAre;

Options ssp(std::int64_t staleness, std::int64_t steps) {
  return {.steps = steps, .seed = 2, .sync = Sync::kSsp, .staleness = staleness};
}

TEST(AsyncTest, WorkersDoNotWaitForEachOther) {
  // 4 samples each; the second worker pushes every 1 s, the first every 4 s: at 4 s the fifth push of 4 samples
  // completes 20, and 5 x 8 samples in a row take 8 s.
  const Options options{.global_batch = 8, .steps = 5, .sync = Sync::kAsp};
  const Result result = simulate(small_cluster({1, 4}), options, "uniform");
  EXPECT_DOUBLE_EQ(result.total_seconds, 8.0);
  EXPECT_DOUBLE_EQ(result.samples_per_second, 5.0);
  EXPECT_DOUBLE_EQ(result.share_of_peak, 1.0);
}

TEST(AsyncTest, EqualWorkersAreStaleByTheNumberOfTheOthers) {
  // In the first round the updates of 0, 1, .. 7 others came before; from then on 7.
  const Options options{.global_batch = 80, .steps = 100, .sync = Sync::kAsp};
  const Result result = simulate(small_cluster({1, 1, 1, 1, 1, 1, 1, 1}), options, "uniform");
  EXPECT_EQ(result.max_staleness, 7);
  EXPECT_DOUBLE_EQ(result.mean_staleness, 7.0 - 3.5 / 100.0);
}

TEST(AsyncTest, SspKeepsItsBound) {
  const ClusterSpec cluster = noisy(builtin_cluster("hl8", 200), 0.2);
  for (const std::int64_t bound : {0, 1, 3, 10}) {
    EXPECT_EQ(simulate(cluster, ssp(bound, 200), "uniform").max_lead, bound);
  }
  // Without the bound the fastest of eight would be far ahead.
  EXPECT_GT(simulate(cluster, {.steps = 200, .sync = Sync::kAsp}, "uniform").max_lead, 100);
}

TEST(AsyncTest, SspWithBoundZeroIsBsp) {
  ClusterSpec cluster = noisy(builtin_cluster("dynamic", 60), 0.1);
  cluster.workers[1].interference = {.slowdown = 1.5, .on = 3, .off = 4};
  cluster.workers[2].noise.drift = 0.02;
  for (const char* policy : {"uniform", "oracle"}) {
    const Options options = ssp(0, 60);
    Options synchronous = options;
    synchronous.sync = Sync::kBsp;
    const Result a = simulate(cluster, options, policy);
    const Result b = simulate(cluster, synchronous, policy);
    EXPECT_NEAR(a.total_seconds, b.total_seconds, 1e-9) << policy;
    EXPECT_NEAR(a.step_seconds.p50, b.step_seconds.p50, 1e-12) << policy;
    EXPECT_NEAR(a.balance, b.balance, 1e-12) << policy;
    EXPECT_EQ(a.batch_sizes, b.batch_sizes) << policy;
    EXPECT_EQ(a.adjustments, b.adjustments) << policy;
    EXPECT_EQ(a.recovery_steps_p90, b.recovery_steps_p90) << policy;
  }
}

TEST(AsyncTest, TheLinkDelaysAPush) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.workers[0].link.bytes_per_second = 10.0;
  const Options options{
      .global_batch = 8, .steps = 1, .sync = Sync::kAsp, .network = {.gradient_bytes = 5.0, .buckets = 1}};
  const auto records = updates_of(cluster, options, "uniform");
  // 4 s of computing; 5 bytes there and 5 back take 1 s.
  ASSERT_EQ(records.size(), 2U);
  EXPECT_DOUBLE_EQ(records[0].seconds, 4.0);
  EXPECT_DOUBLE_EQ(records[1].seconds, 5.0);
  EXPECT_DOUBLE_EQ(records[1].worker.exchange_seconds, 1.0);
  EXPECT_EQ(records[1].staleness, 1);
}

TEST(AsyncTest, AKillLosesTheIterationAndFreesTheOthers) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.changes = {at_seconds(5.0, "w0", Event::kKill)};
  // Both push at 4 s and start anew; w1 pushes at 8 s, still 4 samples, and then takes 8 samples in 8 s: 16 s. The 8
  // samples of step 2 are complete with half of that push, those of step 3 with the push at 24 s.
  const Options options{.global_batch = 8, .steps = 3, .sync = Sync::kSsp, .staleness = 0};
  const Result result = simulate(cluster, options, "uniform");
  EXPECT_DOUBLE_EQ(result.total_seconds, 24.0);
  EXPECT_THAT(result.batch_sizes, ElementsAre(8));
}

TEST(AsyncTest, AStoppedWorkerContinuesWhereItWas) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.changes = {at_seconds(1.0, "w0", Event::kStop), at_seconds(11.0, "w0", Event::kContinue)};
  const Options options{.global_batch = 8, .steps = 3, .sync = Sync::kSsp, .staleness = 0};
  std::map<WorkerId, double> first_push;
  for (const UpdateRecord& record : updates_of(cluster, options, "uniform")) {
    first_push.emplace(record.worker.id, record.worker.start_seconds + record.seconds);
  }
  // w0 has 3 of its 4 s left when it continues.
  EXPECT_DOUBLE_EQ(first_push[0], 14.0);
  EXPECT_DOUBLE_EQ(first_push[1], 4.0);
  EXPECT_DOUBLE_EQ(simulate(cluster, options, "uniform").total_seconds, 22.0);

  cluster.changes.pop_back();
  EXPECT_THROW((void)simulate(cluster, options, "uniform"), std::invalid_argument);
}

TEST(AsyncTest, AWorkerThatIsHeldBackMayBeStopped) {
  ClusterSpec cluster = small_cluster({1, 4});
  // w1 waits from 1 s on for w0, which pushes at 4 s; stopped until 9 s, it then starts its second iteration.
  cluster.changes = {at_seconds(2.0, "w1", Event::kStop), at_seconds(9.0, "w1", Event::kContinue)};
  const Options options{.global_batch = 8, .steps = 2, .sync = Sync::kSsp, .staleness = 0};
  EXPECT_DOUBLE_EQ(simulate(cluster, options, "uniform").total_seconds, 10.0);
}

TEST(AsyncTest, AJoinStartsAtOnce) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.workers[1].absent = true;
  cluster.changes = {at_seconds(2.0, "w1", Event::kJoin)};
  const auto records = updates_of(cluster, {.global_batch = 8, .steps = 2, .sync = Sync::kAsp}, "uniform");
  // w1 takes its 4 samples at 2 s; w0 finishes its 8 at 8 s and takes 4 from then on.
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].worker.id, 1U);
  EXPECT_DOUBLE_EQ(records[0].worker.start_seconds, 2.0);
  EXPECT_EQ(records[0].worker.batch, 4);
}

TEST(AsyncTest, AnEmptyBatchIsRefused) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.workers[0].min_batch = 0;
  EXPECT_THROW((void)simulate(cluster, {.sync = Sync::kAsp}, "uniform"), std::invalid_argument);
}

}  // namespace
}  // namespace isochron::sim
