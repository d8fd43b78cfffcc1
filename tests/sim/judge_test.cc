#include "isochron/sim/judge.h"

#include <vector>

#include "small_cluster.h"
#include <gtest/gtest.h>

namespace isochron::sim {
namespace {

bool is_good(const ClusterSpec& cluster, const std::vector<std::int64_t>& batch_sizes) {
  return Judge(8).is_good(Fleet(cluster, 0), batch_sizes);
}

TEST(JudgeTest, WithoutNoiseTheLongestTimeCounts) {
  EXPECT_TRUE(is_good(small_cluster({1, 1}), {4, 4}));
  EXPECT_FALSE(is_good(small_cluster({1, 1}), {5, 3}));
  EXPECT_TRUE(is_good(small_cluster({1, 7}), {1, 7}));
}

TEST(JudgeTest, WithNoiseTheExpectedMaximumCounts) {
  // Two log-normal times a e^(s x), b e^(s y) have E[max] = e^(s^2 / 2) (a Phi(d) + b Phi(s sqrt 2 - d)) with
  // d = log(a / b) / (s sqrt 2) + s / sqrt 2. For 5 + 3 against 4 + 4 samples: 6.08 / 5.79 = 1.050 at s = 0.5, and
  // 10.21 / 10.03 = 1.018 at s = 1.
  EXPECT_FALSE(is_good(noisy(small_cluster({1, 1}), 0.5), {5, 3}));
  EXPECT_TRUE(is_good(noisy(small_cluster({1, 1}), 1.0), {5, 3}));
}

TEST(JudgeTest, NoticesANewSpeedAndANewSplit) {
  const ClusterSpec cluster = small_cluster({1, 1});
  Fleet fleet(cluster, 0);
  Judge judge(8);
  const std::vector<std::int64_t> even{4, 4};
  const std::vector<std::int64_t> uneven{2, 6};
  EXPECT_TRUE(judge.is_good(fleet, even));
  EXPECT_FALSE(judge.is_good(fleet, uneven));
  fleet.set_cores(1, 3.0);
  EXPECT_TRUE(judge.is_good(fleet, uneven));
}

}  // namespace
}  // namespace isochron::sim
