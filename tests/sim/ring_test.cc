#include "isochron/sim/ring.h"

#include <algorithm>
#include <vector>

#include "small_cluster.h"
#include <gtest/gtest.h>

namespace isochron::sim {
namespace {

TEST(RingTest, TheRingGoesByTheSlowestLinkAndTheLongestDelay) {
  ClusterSpec cluster = small_cluster({1, 1, 1, 1});
  cluster.workers[1].link.bytes_per_second = 100.0;
  cluster.workers[2].link = {.bytes_per_second = 1000.0, .delay_seconds = 0.01};
  const std::vector<Member> all{{0, 0}, {1, 1}, {2, 2}, {3, 3}};
  const Network network{.gradient_bytes = 800.0, .buckets = 4};
  // 200 bytes a bucket: 2 x 3/4 x 200 / 100 + 2 x 3 x 0.01.
  EXPECT_DOUBLE_EQ(bucket_seconds(network, cluster, all), 3.06);
  EXPECT_DOUBLE_EQ(bucket_seconds(network, cluster, std::vector<Member>{{0, 0}, {3, 3}}), 0.0);
  EXPECT_DOUBLE_EQ(bucket_seconds(network, cluster, std::vector<Member>{{1, 1}}), 0.0);
}

/// Bucket by bucket, as the header tells it.
double arrival(const Network& network, double bucket, double compute) {
  double end = 0.0;
  for (std::int64_t i = 1; i <= network.buckets; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(network.buckets);
    const double ready = network.overlap ? compute / 3.0 + 2.0 / 3.0 * compute * share : compute;
    end = std::max(end, ready) + bucket;
  }
  return end;
}

TEST(RingTest, HidesWhatBackwardCovers) {
  for (const std::int64_t buckets : {1, 2, 8, 100}) {
    for (const double bucket : {0.0, 0.01, 0.5, 3.0}) {
      for (const double compute : {0.3, 1.0, 30.0}) {
        for (const bool overlap : {false, true}) {
          const Network network{.gradient_bytes = 1.0, .buckets = buckets, .overlap = overlap};
          EXPECT_NEAR(compute + exposed_seconds(network, bucket, compute), arrival(network, bucket, compute), 1e-9)
              << buckets << " buckets of " << bucket << " s, compute " << compute << " s, overlap " << overlap;
        }
      }
    }
  }
}

TEST(RingTest, AnAsynchronousWorkerUsesItsOwnLinkBothWays) {
  const Network network{.gradient_bytes = 100.0};
  EXPECT_DOUBLE_EQ(push_pull_seconds(network, {.bytes_per_second = 50.0, .delay_seconds = 0.25}), 4.5);
  EXPECT_DOUBLE_EQ(push_pull_seconds({}, {.bytes_per_second = 50.0, .delay_seconds = 0.25}), 0.0);
}

}  // namespace
}  // namespace isochron::sim
