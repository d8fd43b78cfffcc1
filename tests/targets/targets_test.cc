// What the isochron policy must reach in simulation, against an oracle that knows the true speeds but not the noise and
// sees the same noise. The simulator is deterministic, so these are exact statements, not timings.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/policy/registry.h"
#include "isochron/sim/builtin.h"
#include "isochron/sim/simulate.h"

namespace isochron::sim {
namespace {

constexpr int kSeeds = 3;

std::vector<std::string> builtin_names() {
  std::vector<std::string> names;
  for (const BuiltinHelp& help : builtin_clusters()) {
    names.push_back(help.name);
  }
  return names;
}

std::int64_t samples_for(const ClusterSpec& cluster, std::int64_t per_worker) {
  return per_worker * static_cast<std::int64_t>(cluster.workers.size());
}

void set_noise(ClusterSpec& cluster, const Noise& noise) {
  for (WorkerSpec& worker : cluster.workers) {
    worker.noise = noise;
  }
}

/// Means over seeds.
struct Score {
  double time_over_oracle = 0.0;
  double share_of_changes = 0.0;
  double recovery_p50 = 0.0;
};

Score score(const ClusterSpec& cluster, std::int64_t global_batch, std::int64_t steps, const std::string& policy) {
  Score mean;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Options options{.global_batch = global_batch, .steps = steps, .seed = seed};
    const Result result = compare(cluster, options, {policy}).front();
    mean.time_over_oracle += result.time_over_oracle / kSeeds;
    mean.share_of_changes += static_cast<double>(result.adjustments) / static_cast<double>(steps) / kSeeds;
    mean.recovery_p50 += result.recovery_steps_p50 / kSeeds;
  }
  return mean;
}

class EveryCluster : public testing::TestWithParam<std::string> {};

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Builtin, EveryCluster, testing::ValuesIn(builtin_names()), test_name);

TEST_P(EveryCluster, IsBalancedAfterOneAdjustmentWithoutNoise) {
  ClusterSpec cluster = builtin_cluster(GetParam(), 50);
  cluster.changes.clear();
  set_noise(cluster, {});
  cluster.common_noise = 0.0;
  for (WorkerSpec& worker : cluster.workers) {
    worker.interference = {};
    worker.overhead = worker.plateau = worker.cold_seconds = 0.0;
  }
  const Options options{.global_batch = samples_for(cluster, 64), .steps = 50};
  const Result result = compare(cluster, options, {"isochron"}).front();
  EXPECT_LE(result.time_over_oracle, 1.005);
  EXPECT_LE(result.adjustments, 1);
}

TEST_P(EveryCluster, IsDoneSoonerThanByAnyOtherPolicy) {
  // Newcomers of unknown speed get the share of the slowest worker for one step; others bet on the median, and the
  // newcomers here happen to be fast.
  const std::set<std::string> exceptions{"spot"};
  const ClusterSpec cluster = builtin_cluster(GetParam(), 400);
  const Options options{.global_batch = samples_for(cluster, 128), .steps = 400, .seed = 1};
  std::vector<std::string> policies;
  for (const PolicyHelp& help : policy_help()) {
    if (help.name != "static") {  // it is told the speeds
      policies.push_back(help.name);
    }
  }
  policies.emplace_back("lb-bsp:predictor=ewma");
  policies.emplace_back("lb-bsp:device=gpu");
  const std::vector<Result> results = compare(cluster, options, policies);
  const auto ours = std::ranges::find(results, "isochron", &Result::policy);
  for (const Result& other : results) {
    EXPECT_LE(ours->time_over_oracle, other.time_over_oracle * (exceptions.contains(GetParam()) ? 1.002 : 1.0005))
        << "against " << other.policy;
  }
}

TEST(TargetsTest, ComesWithinHalfAPercentOfTheOracleAtFivePercentNoise) {
  for (const std::string name : {"hl1", "hl2", "hl4", "hl8", "mixed16"}) {
    ClusterSpec cluster = builtin_cluster(name, 400);
    set_noise(cluster, {.sigma = 0.05});
    const Score result = score(cluster, samples_for(cluster, 256), 400, "isochron");
    EXPECT_LE(result.time_over_oracle, 1.005) << name;
    EXPECT_LE(result.share_of_changes, 0.06) << name;
  }
}

TEST(TargetsTest, ComesWithinOnePercentWith256Workers) {
  ClusterSpec cluster = builtin_cluster("mixed256", 300);
  set_noise(cluster, {.sigma = 0.05});
  const Score result = score(cluster, 16384, 300, "isochron");
  EXPECT_LE(result.time_over_oracle, 1.01);
  EXPECT_LE(result.share_of_changes, 0.06);
}

TEST(TargetsTest, FollowsTheDynamicScheduleWithinOnePercentAndTwoSteps) {
  ClusterSpec cluster = builtin_cluster("dynamic", 800);
  set_noise(cluster, {.sigma = 0.05});
  for (const std::int64_t global_batch : {128, 1024}) {
    const Score result = score(cluster, global_batch, 800, "isochron");
    EXPECT_LE(result.time_over_oracle, 1.01) << global_batch;
    EXPECT_LE(result.recovery_p50, 2.0) << global_batch;
  }
}

TEST(TargetsTest, FollowsChangesOfTwentyPercentWithinTwoSteps) {
  ClusterSpec cluster = builtin_cluster("hl2", 600);
  set_noise(cluster, {.sigma = 0.05});
  for (std::int64_t step = 50; step < 600; step += 50) {
    cluster.changes.push_back(
        {.at_step = step, .worker = cluster.workers[2].name, .cores = step % 100 == 50 ? 8.0 / 1.2 : 8.0});
    cluster.changes.push_back(
        {.at_step = step, .worker = cluster.workers[3].name, .cores = step % 100 == 50 ? 16.0 / 1.25 : 16.0});
  }
  const Score result = score(cluster, 1024, 600, "isochron");
  EXPECT_LE(result.recovery_p50, 2.0);
  EXPECT_LE(result.time_over_oracle, 1.01);
}

TEST(TargetsTest, IsNotFooledByHeavyTailedSpikes) {
  EXPECT_LE(score(builtin_cluster("spiky", 600), 1024, 600, "isochron").time_over_oracle, 1.01);
}

}  // namespace
}  // namespace isochron::sim
