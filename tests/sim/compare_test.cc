#include <algorithm>
#include <stdexcept>

#include "small_cluster.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/sim/builtin.h"

namespace isochron::sim {
namespace {

using ::testing::ElementsAre;

TEST(CompareTest, RelatesTimesToTheOraclesWithoutTheFirstStep) {
  ClusterSpec cluster = small_cluster({1, 3});
  cluster.changes = {{.at_step = 1, .worker = "w1", .cores = 7.0}};
  const Options options{.global_batch = 8, .steps = 3};
  const auto results = compare(cluster, options, {"uniform", "oracle"});
  // Uniform 4 s a step; the oracle 2 s, then 1 s.
  EXPECT_EQ(results[0].policy, "uniform");
  EXPECT_DOUBLE_EQ(results[0].time_over_oracle, 4.0);
  EXPECT_DOUBLE_EQ(results[1].time_over_oracle, 1.0);
}

TEST(CompareTest, TheSameSeedGivesTheSameRun) {
  const ClusterSpec cluster = noisy(builtin_cluster("hl8", 50), 0.1);
  Options options{.steps = 50, .seed = 5};
  const Result first = simulate(cluster, options, "oracle");
  EXPECT_EQ(simulate(cluster, options, "oracle").total_seconds, first.total_seconds);
  options.seed = 6;
  EXPECT_NE(simulate(cluster, options, "oracle").total_seconds, first.total_seconds);
}

TEST(CompareTest, TheOracleTakesTheBestSplit) {
  ClusterSpec cluster = small_cluster({1, 2.5, 7});
  cluster.workers[0].overhead = 1.5;
  cluster.workers[2].plateau = 9.0;
  cluster.workers[1].max_batch = 4;
  const Result oracle = simulate(cluster, {.global_batch = 20, .steps = 1}, "oracle");
  double best = 1e9;
  for (int a = 1; a <= 18; ++a) {
    for (int b = 1; b <= std::min(4, 19 - a); ++b) {
      const int c = 20 - a - b;
      best = std::min(best, std::max({1.5 + a, b / 2.5, std::max(c, 9) / 7.0}));
    }
  }
  EXPECT_DOUBLE_EQ(oracle.total_seconds, best);
}

TEST(CompareTest, TheOracleFollowsSpeedsButNotNoise) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.workers[0].interference = {.slowdown = 3.0, .on = 1, .off = 1};
  const auto batches = [&] {
    std::vector<std::int64_t> first;
    for (const StepRecord& record : records_of(cluster, {.global_batch = 8, .steps = 4}, "oracle")) {
      first.push_back(record.workers[0].batch);
    }
    return first;
  };
  EXPECT_THAT(batches(), ElementsAre(2, 4, 2, 4));
  EXPECT_THAT((cluster = noisy(cluster, 0.3), batches()), ElementsAre(2, 4, 2, 4));
}

TEST(CompareTest, TheLateOracleIsOneStepBehind) {
  ClusterSpec cluster = small_cluster({1, 1, 2});
  cluster.changes = {{.at_step = 2, .worker = "w0", .cores = 2.0}, at_step(4, "w2", Event::kKill)};
  std::vector<std::vector<std::int64_t>> splits;
  for (const StepRecord& record : records_of(cluster, {.global_batch = 60, .steps = 5}, "late-oracle")) {
    splits.emplace_back();
    for (const WorkerStep& worker : record.workers) {
      splits.back().push_back(worker.batch);
    }
  }
  EXPECT_THAT(
      splits,
      ElementsAre(
          ElementsAre(15, 15, 30),
          ElementsAre(15, 15, 30),
          ElementsAre(15, 15, 30),
          ElementsAre(24, 12, 24),
          ElementsAre(40, 20)));
}

TEST(CompareTest, RunsEveryBuiltInClusterInEveryMode) {
  for (const BuiltinHelp& help : builtin_clusters()) {
    const ClusterSpec cluster = builtin_cluster(help.name, 40);
    for (const Sync sync : {Sync::kBsp, Sync::kAsp, Sync::kSsp}) {
      const Options options{.global_batch = 1024, .steps = 40, .sync = sync, .staleness = 2};
      const auto results = compare(cluster, options, {"uniform", "static", "oracle"});
      for (const Result& result : results) {
        EXPECT_EQ(result.steps, 40) << help.name;
        EXPECT_GT(result.share_of_peak, 0.0) << help.name;
        EXPECT_LE(result.balance, 1.0 + 1e-12) << help.name;
      }
    }
  }
}

TEST(CompareTest, RefusesBadOptions) {
  const ClusterSpec cluster = small_cluster({1, 1});
  const auto run = [&](const Options& options) { (void)simulate(cluster, options, "uniform"); };
  EXPECT_THROW(run({.global_batch = 0}), std::invalid_argument);
  EXPECT_THROW(run({.global_batch = 1}), std::invalid_argument);
  EXPECT_THROW(run({.steps = 0}), std::invalid_argument);
  EXPECT_THROW(run({.staleness = -1}), std::invalid_argument);
  EXPECT_THROW(run({.network = {.buckets = 0}}), std::invalid_argument);
  EXPECT_THROW(run({.network = {.gradient_bytes = -1.0}}), std::invalid_argument);
  EXPECT_THROW(run({.failure_seconds = -1.0}), std::invalid_argument);
  EXPECT_THROW((void)simulate(cluster, {}, "no-such-policy"), std::invalid_argument);
}

}  // namespace
}  // namespace isochron::sim
