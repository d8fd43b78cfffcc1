#include "isochron/sim/lengths.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "small_cluster.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/sim/builtin.h"
#include "isochron/sim/simulate.h"

namespace isochron::sim {
namespace {

/// Speeds at even steps of the logarithm from 1 to 8, a fixed cost of half a sample.
ClusterSpec mixed_speeds(int workers, double noise) {
  ClusterSpec cluster = small_cluster({});
  for (int i = 0; i < workers; ++i) {
    WorkerSpec worker;
    worker.name = "w" + std::to_string(i);
    worker.cores = std::exp2(3.0 * i / (workers - 1));
    worker.overhead = 0.5;
    worker.noise.sigma = noise;
    cluster.workers.push_back(worker);
  }
  return cluster;
}

struct Times {
  double by_cost = 0.0;
  double by_count = 0.0;
  double lengths_alone = 0.0;  // balanced as if the workers were equal
};

/// Over the oracle, which knows all speeds and deals by cost.
Times over_oracle(const ClusterSpec& cluster, std::int64_t global_batch, Lengths lengths, std::int64_t steps = 120) {
  const auto run = [&](const char* policy, bool by_cost) {
    Options options{.global_batch = global_batch, .steps = steps, .seed = 3};
    lengths.by_cost = by_cost;
    options.lengths = lengths;
    return simulate(cluster, options, policy);
  };
  const Result oracle = run("oracle", true);
  return {
      .by_cost = time_over(run("isochron", true), oracle),
      .by_count = time_over(run("isochron", false), oracle),
      .lengths_alone = time_over(run("uniform", true), oracle)};
}

TEST(LengthsTest, ByCostIsNearAnOracleAndByCountIsNot) {
  for (const int workers : {4, 16, 64}) {
    const Times times = over_oracle(mixed_speeds(workers, 0.0), 16 * workers, {});
    EXPECT_LT(times.by_cost, 1.0 / 0.97) << workers;
    EXPECT_GT(times.by_count, 1.2) << workers;
    EXPECT_GT(times.lengths_alone, 1.8) << workers;
  }
}

TEST(LengthsTest, NoiseAndChangingSpeedsAreFollowed) {
  EXPECT_LT(over_oracle(mixed_speeds(16, 0.05), 256, {}, 300).by_cost, 1.0 / 0.97);
  EXPECT_LT(over_oracle(noisy(builtin_cluster("dynamic", 400), 0.05), 256, {}, 400).by_cost, 1.0 / 0.95);
}

TEST(LengthsTest, PaddedSharesGainMore) {
  const Lengths padded{.collation = Collation::kPadded};
  const Times times = over_oracle(mixed_speeds(16, 0.0), 256, padded);
  EXPECT_LT(times.by_cost, 1.05);
  EXPECT_GT(times.by_count, 2.5);
}

TEST(LengthsTest, ManyWorkersOfWhichSomeChangeAreFollowed) {
  ClusterSpec cluster = mixed_speeds(64, 0.05);
  for (std::size_t k = 0; k < cluster.workers.size(); k += 4) {
    cluster.changes.push_back(
        {.at_step = 60, .worker = cluster.workers[k].name, .cores = 0.5 * cluster.workers[k].cores});
  }
  for (const Collation collation : {Collation::kPacked, Collation::kPadded}) {
    EXPECT_LT(over_oracle(cluster, 1024, Lengths{.collation = collation}, 180).by_cost, 1.0 / 0.97);
  }
}

TEST(LengthsTest, WhatAttentionCostsIsLearned) {
  for (const Collation collation : {Collation::kPacked, Collation::kPadded}) {
    const Lengths learned{.cost = {.attention_width = 64.0, .learned = true}, .collation = collation};
    EXPECT_LT(over_oracle(mixed_speeds(16, 0.05), 256, learned, 300).by_cost, 1.0 / 0.97);
  }
}

TEST(LengthsTest, EqualLengthsCostWhatSamplesDo) {
  const ClusterSpec cluster = small_cluster({1, 3});
  Options options{.global_batch = 8, .steps = 2};
  options.lengths = Lengths{.given = {50.0}};
  for (const bool by_cost : {true, false}) {
    options.lengths->by_cost = by_cost;
    EXPECT_DOUBLE_EQ(simulate(cluster, options, "oracle").total_seconds, 4.0);  // 2 and 6 samples: 2 s each
    EXPECT_DOUBLE_EQ(simulate(cluster, options, "uniform").total_seconds, 8.0);
  }
}

TEST(LengthsTest, EveryBuiltInClusterAndPolicyRunsByCost) {
  for (const BuiltinHelp& builtin : builtin_clusters()) {
    const ClusterSpec cluster = builtin_cluster(builtin.name, 20);
    Options options{.global_batch = 512, .steps = 20};
    options.lengths = Lengths{};
    for (const char* const policy : {"isochron", "omnilearn", "lb-bsp", "lbb", "dlb", "uniform", "static", "oracle"}) {
      std::int64_t samples = 0;
      const Result result = simulate(cluster, options, policy, {.step = [&](const StepRecord& record) {
                                       for (const WorkerStep& worker : record.workers) {
                                         samples += worker.batch;
                                       }
                                     }});
      EXPECT_EQ(samples, 20 * 512) << builtin.name << " " << policy;
      EXPECT_TRUE(std::isfinite(result.total_seconds));
    }
  }
}

TEST(LengthsTest, DistributionsAreWhatTheySay) {
  const SampleWorks works = parse_lengths("lognormal:median=300,sigma=0.5,least=10,most=1000").works(20'001, 1);
  std::vector<float> sorted = works.works;
  std::ranges::sort(sorted);
  EXPECT_NEAR(sorted[10'000], 300.0, 10.0);
  EXPECT_NEAR(std::log(sorted[16'827] / sorted[10'000]), 0.5, 0.03);  // the quantile of one standard deviation
  EXPECT_GE(sorted.front(), 10.0F);
  EXPECT_LE(sorted.back(), 1000.0F);
  const Lengths attention{.given = {600.0}, .cost = {.attention_width = 100.0}};
  EXPECT_FLOAT_EQ(attention.works(1, 1).works[0], 1200.0F);  // 600 + 600 x 600 / 600
}

TEST(LengthsTest, BadDistributionsAreRefused) {
  EXPECT_THROW((void)parse_lengths("normal"), std::invalid_argument);
  EXPECT_THROW((void)parse_lengths("lognormal:sigma=-1"), std::invalid_argument);
  EXPECT_THROW((void)parse_lengths("lognormal:least=5,most=4"), std::invalid_argument);
  EXPECT_THROW((void)parse_lengths("lognormal:width=4"), std::invalid_argument);
  Options options{.global_batch = 8, .steps = 2, .sync = Sync::kAsp};
  options.lengths = Lengths{};
  EXPECT_THROW(options.validate(), std::invalid_argument);
}

}  // namespace
}  // namespace isochron::sim
