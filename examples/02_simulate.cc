// Two policies on a cluster described in code: four workers, one of them eight times as fast as the slowest.
//
// Both runs see the same noise, so the ratio of their times is the gain.
#include <cstdio>

#include "isochron/sim/simulate.h"

int main() {
  isochron::sim::ClusterSpec cluster;
  cluster.name = "example";
  for (const double cores : {6.0, 6.0, 4.0, 32.0}) {
    isochron::sim::WorkerSpec worker;
    worker.name = "w" + std::to_string(cluster.workers.size());
    worker.cores = cores;
    worker.noise.sigma = 0.05;
    cluster.workers.push_back(worker);
  }
  // The fast worker loses half of its cores in mid-run.
  isochron::sim::Change change;
  change.at_step = 150;
  change.worker = "w3";
  change.cores = 16.0;
  cluster.changes.push_back(change);

  const isochron::sim::Options options{.global_batch = 128, .steps = 300, .seed = 1};
  double uniform_seconds = 0.0;
  for (const char* policy : {"uniform", "isochron"}) {
    const isochron::sim::Result result = isochron::sim::simulate(cluster, options, policy);
    if (uniform_seconds == 0.0) {
      uniform_seconds = result.total_seconds;
    }
    std::printf(
        "%-9s %7.2f s, %6.1f samples/s, balance %.3f, %lld adjustments, %.2fx uniform\n",
        policy,
        result.total_seconds,
        result.samples_per_second,
        result.balance,
        static_cast<long long>(result.adjustments),
        uniform_seconds / result.total_seconds);
  }
}
