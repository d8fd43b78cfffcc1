// Clusters small enough to follow by hand: one sample takes one second on one core.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "isochron/sim/simulate.h"

namespace isochron::sim {

inline ClusterSpec small_cluster(std::initializer_list<double> cores) {
  ClusterSpec cluster;
  cluster.name = "small";
  cluster.sample_seconds = 1.0;
  for (const double speed : cores) {
    WorkerSpec worker;
    worker.name = "w" + std::to_string(cluster.workers.size());
    worker.cores = speed;
    cluster.workers.push_back(worker);
  }
  return cluster;
}

inline Change at_step(std::int64_t step, std::string worker, Event event) {
  return {.at_step = step, .worker = std::move(worker), .event = event};
}

inline Change at_seconds(double seconds, std::string worker, Event event) {
  return {.at_seconds = seconds, .worker = std::move(worker), .event = event};
}

inline ClusterSpec noisy(ClusterSpec cluster, double sigma) {
  for (WorkerSpec& worker : cluster.workers) {
    worker.noise.sigma = sigma;
  }
  return cluster;
}

inline std::vector<StepRecord> records_of(
    const ClusterSpec& cluster, const Options& options, const std::string& policy) {
  std::vector<StepRecord> records;
  (void)simulate(cluster, options, policy, {.step = [&](const StepRecord& record) { records.push_back(record); }});
  return records;
}

inline std::vector<UpdateRecord> updates_of(
    const ClusterSpec& cluster, const Options& options, const std::string& policy) {
  std::vector<UpdateRecord> records;
  (void)simulate(cluster, options, policy, {.update = [&](const UpdateRecord& record) { records.push_back(record); }});
  return records;
}

}  // namespace isochron::sim
