#include "isochron/sim/ring.h"

#include <algorithm>

namespace isochron::sim {
namespace {

/// 0 for a link without a limit.
double seconds_per_byte(const Link& link) {
  return link.bytes_per_second > 0.0 ? 1.0 / link.bytes_per_second : 0.0;
}

}  // namespace

Link slower(const Link& a, const Link& b) {
  const bool a_is_slower = seconds_per_byte(a) > seconds_per_byte(b);
  return {
      .bytes_per_second = a_is_slower ? a.bytes_per_second : b.bytes_per_second,
      .delay_seconds = std::max(a.delay_seconds, b.delay_seconds)};
}

double ring_seconds(double bytes, std::size_t workers, const Link& link) {
  const auto count = static_cast<double>(workers);
  return 2.0 * (count - 1.0) * (bytes * seconds_per_byte(link) / count + link.delay_seconds);
}

double bucket_seconds(const Network& network, const ClusterSpec& cluster, std::span<const Member> members) {
  if (network.gradient_bytes == 0.0) {
    return 0.0;
  }
  Link slowest;
  for (const Member& member : members) {
    slowest = slower(slowest, cluster.workers[member.index].link);
  }
  return ring_seconds(network.gradient_bytes / static_cast<double>(network.buckets), members.size(), slowest);
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
