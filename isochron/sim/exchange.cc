#include "isochron/sim/exchange.h"

#include <algorithm>

namespace isochron::sim {
namespace {

/// 0 for a link without a limit.
double seconds_per_byte(const Link& link) {
  return link.bytes_per_second > 0.0 ? 1.0 / link.bytes_per_second : 0.0;
}

}  // namespace

double bucket_seconds(const Network& network, const ClusterSpec& cluster, std::span<const Member> members) {
  if (network.gradient_bytes == 0.0) {
    return 0.0;
  }
  double slowest = 0.0;
  double delay = 0.0;
  for (const Member& member : members) {
    const Link& link = cluster.workers[member.index].link;
    slowest = std::max(slowest, seconds_per_byte(link));
    delay = std::max(delay, link.delay_seconds);
  }
  const auto workers = static_cast<double>(members.size());
  const double bytes = network.gradient_bytes / static_cast<double>(network.buckets);
  return 2.0 * (workers - 1.0) * (bytes * slowest / workers + delay);
}

double exposed_seconds(const Network& network, double bucket_seconds, double compute_seconds) {
  const auto buckets = static_cast<double>(network.buckets);
  const double whole = buckets * bucket_seconds;
  if (!network.overlap) {
    return whole;
  }
  const double first_ready = compute_seconds * (1.0 + 2.0 / buckets) / 3.0;
  return std::max(first_ready + whole - compute_seconds, bucket_seconds);
}

double push_pull_seconds(const Network& network, const Link& link) {
  return network.gradient_bytes == 0.0 ? 0.0
                                       : 2.0 * (network.gradient_bytes * seconds_per_byte(link) + link.delay_seconds);
}

}  // namespace isochron::sim
