#include "isochron/sim/builtin.h"

#include <array>
#include <cmath>
#include <span>
#include <stdexcept>
#include <utility>

namespace isochron::sim {
namespace {

ClusterSpec from_cores(std::span<const double> cores) {
  ClusterSpec cluster;
  for (const double speed : cores) {
    WorkerSpec worker;
    worker.name = "w" + std::to_string(cluster.workers.size());
    worker.cores = speed;
    cluster.workers.push_back(std::move(worker));
  }
  return cluster;
}

/// Every worker with the same noise.
ClusterSpec with_noise(ClusterSpec cluster, const Noise& noise) {
  for (WorkerSpec& worker : cluster.workers) {
    worker.noise = noise;
  }
  return cluster;
}

void change_cores(ClusterSpec& cluster, std::int64_t step, std::size_t worker, double cores) {
  cluster.changes.push_back({.at_step = step, .worker = cluster.workers[worker].name, .cores = cores});
}

void change_presence(ClusterSpec& cluster, std::int64_t step, std::size_t worker, Event event) {
  cluster.changes.push_back({.at_step = step, .worker = cluster.workers[worker].name, .event = event});
}

/// The step at `eighths` / 8 of a run, without overflow for any length.
std::int64_t stage(std::int64_t steps, std::int64_t eighths) {
  return steps / 8 * eighths + steps % 8 * eighths / 8;
}

// Cores of four containers on one 48-core machine, by heterogeneity level max/min (arXiv 2503.17469).
constexpr std::array kHl1{12.0, 12.0, 12.0, 12.0};
constexpr std::array kHl2{12.0, 12.0, 8.0, 16.0};
constexpr std::array kHl4{9.0, 9.0, 6.0, 24.0};
constexpr std::array kHl8{6.0, 6.0, 4.0, 32.0};
// Three workers that share 39 cores (arXiv 2305.12213).
constexpr std::array kH2{9.0, 12.0, 18.0};
constexpr std::array kH10{2.0, 17.0, 20.0};

ClusterSpec dynamic(std::int64_t steps) {
  const std::array levels{&kHl1, &kHl2, &kHl4, &kHl8, &kHl8, &kHl4, &kHl2, &kHl1};
  ClusterSpec cluster = from_cores(kHl1);
  for (std::size_t level = 1; level < levels.size(); ++level) {
    for (std::size_t worker = 0; worker < cluster.workers.size(); ++worker) {
      change_cores(cluster, stage(steps, static_cast<std::int64_t>(level)), worker, (*levels[level])[worker]);
    }
  }
  return cluster;
}

WorkerSpec gpu(std::string name, std::string kind, double speed, double plateau) {
  WorkerSpec worker;
  worker.name = std::move(name);
  worker.kind = std::move(kind);
  worker.cores = speed;
  worker.plateau = plateau;
  return worker;
}

ClusterSpec gpu_cpu() {
  ClusterSpec cluster = from_cores(std::array{1.0});
  cluster.workers.front().name = "cpu";
  cluster.workers.insert(cluster.workers.begin(), gpu("gpu", "gpu", 100.0, 64.0));
  return cluster;
}

/// 8:1 is the ratio at which balancing gains the 4.5x that arXiv 2305.12213 reports for ResNet: (8 + 1) / 2.
ClusterSpec t4_p4() {
  ClusterSpec cluster;
  for (const char* name : {"t4-0", "t4-1"}) {
    cluster.workers.push_back(gpu(name, "t4", 8.0, 32.0));
  }
  for (const char* name : {"p4-0", "p4-1"}) {
    cluster.workers.push_back(gpu(name, "p4", 1.0, 4.0));
  }
  return cluster;
}

/// Speeds at even steps of the logarithm from 1 to 8.
ClusterSpec mixed(int count) {
  std::vector<double> cores;
  for (int i = 0; i < count; ++i) {
    cores.push_back(std::exp2(3.0 * i / (count - 1)));
  }
  return from_cores(cores);
}

/// Full speed on credits, 40 % without; each machine runs out and recovers at its own times.
ClusterSpec burstable(std::int64_t steps) {
  constexpr double kFull = 2.0;
  constexpr double kBase = 0.8;
  ClusterSpec cluster = from_cores(std::array{kFull, kFull, kFull, kBase, kFull, kFull});
  const auto lose = [&](std::size_t worker, std::int64_t at) {
    change_cores(cluster, stage(steps, at), worker, kBase);
  };
  const auto regain = [&](std::size_t worker, std::int64_t at) {
    change_cores(cluster, stage(steps, at), worker, kFull);
  };
  lose(0, 1);
  regain(3, 2);
  lose(1, 2);
  lose(4, 3);
  regain(0, 4);
  lose(3, 5);
  regain(1, 5);
  lose(5, 6);
  regain(4, 7);
  return cluster;
}

/// Machines of three sizes that are taken away and come back; the first one stays throughout.
ClusterSpec spot(std::int64_t steps) {
  ClusterSpec cluster = from_cores(std::array{4.0, 4.0, 8.0, 2.0, 8.0, 4.0});
  cluster.workers[4].absent = true;
  cluster.workers[5].absent = true;
  change_presence(cluster, stage(steps, 1), 2, Event::kKill);
  change_presence(cluster, stage(steps, 2), 4, Event::kJoin);
  change_presence(cluster, stage(steps, 3), 1, Event::kKill);
  change_presence(cluster, stage(steps, 4), 5, Event::kJoin);
  change_presence(cluster, stage(steps, 5), 2, Event::kJoin);
  change_presence(cluster, stage(steps, 6), 4, Event::kKill);
  change_presence(cluster, stage(steps, 7), 1, Event::kJoin);
  return cluster;
}

ClusterSpec uneven_noise() {
  ClusterSpec cluster = with_noise(from_cores(kHl2), {.sigma = 0.02});
  cluster.workers.back().noise.sigma = 0.2;
  return cluster;
}

ClusterSpec ceiling() {
  ClusterSpec cluster = with_noise(from_cores(kHl4), {.sigma = 0.05});
  cluster.workers.back().max_batch = 480;
  return cluster;
}

ClusterSpec affine_dynamic(std::int64_t steps) {
  ClusterSpec cluster = with_noise(dynamic(steps), {.sigma = 0.05});
  for (WorkerSpec& worker : cluster.workers) {
    worker.overhead = 24.0;
  }
  return cluster;
}

ClusterSpec periodic() {
  ClusterSpec cluster = with_noise(from_cores(kHl2), {.sigma = 0.05});
  cluster.workers.back().interference = {.slowdown = 1.4, .on = 20, .off = 20};
  return cluster;
}

struct Builtin {
  const char* name;
  const char* description;
  ClusterSpec (*make)(std::int64_t steps);
};

using Steps = std::int64_t;

constexpr std::array kBuiltins{
    Builtin{"hl1", "4 equal workers, 12 cores each", [](Steps) { return from_cores(kHl1); }},
    Builtin{"hl2", "12, 12, 8 and 16 cores", [](Steps) { return from_cores(kHl2); }},
    Builtin{"hl4", "9, 9, 6 and 24 cores", [](Steps) { return from_cores(kHl4); }},
    Builtin{"hl8", "6, 6, 4 and 32 cores", [](Steps) { return from_cores(kHl8); }},
    Builtin{"dynamic", "hl1, 2, 4, 8, 8, 4, 2, 1 in equal stages", dynamic},
    Builtin{"h2", "3 workers of 9, 12 and 18 cores", [](Steps) { return from_cores(kH2); }},
    Builtin{"h10", "3 workers of 2, 17 and 20 cores", [](Steps) { return from_cores(kH10); }},
    Builtin{
        "gpu-cpu",
        "a GPU that is 100 times as fast as the CPU beside it, flat up to 64 samples",
        [](Steps) { return gpu_cpu(); }},
    Builtin{"t4-p4", "2 T4 and 2 P4, 8:1, flat up to 32 and 4 samples", [](Steps) { return t4_p4(); }},
    Builtin{"mixed16", "16 workers, speeds from 1 to 8", [](Steps) { return mixed(16); }},
    Builtin{"mixed256", "256 workers, speeds from 1 to 8", [](Steps) { return mixed(256); }},
    Builtin{"burstable", "6 VMs that fall to 40 % of their speed when credits run out, and recover", burstable},
    Builtin{"spot", "up to 6 spot machines that are taken away and come back", spot},
    Builtin{"uneven-noise", "hl2 with 2 % noise, 20 % on the fastest worker", [](Steps) { return uneven_noise(); }},
    Builtin{"ceiling", "hl4, 5 % noise, memory for 480 samples on the fastest worker", [](Steps) { return ceiling(); }},
    Builtin{"affine-dynamic", "dynamic, 5 % noise, each step costs as much as 24 samples more", affine_dynamic},
    Builtin{
        "periodic",
        "hl2, 5 % noise, a co-tenant slows the fastest worker 1.4 times, 20 steps on, 20 off",
        [](Steps) { return periodic(); }},
    Builtin{
        "autocorrelated",
        "hl2, 10 % noise with an autocorrelation of 0.9",
        [](Steps) { return with_noise(from_cores(kHl2), {.sigma = 0.1, .autocorrelation = 0.9}); }},
    Builtin{
        "drifting",
        "hl4, 5 % noise, speeds drift by 1 % a step",
        [](Steps) { return with_noise(from_cores(kHl4), {.sigma = 0.05, .drift = 0.01}); }},
    Builtin{
        "spiky",
        "hl4, 5 % noise, 1 % of the steps take 3 to 10 times as long",
        [](Steps) { return with_noise(from_cores(kHl4), {.sigma = 0.05, .spike_probability = 0.01}); }},
};

}  // namespace

std::vector<BuiltinHelp> builtin_clusters() {
  std::vector<BuiltinHelp> list;
  for (const Builtin& builtin : kBuiltins) {
    list.push_back({.name = builtin.name, .description = builtin.description});
  }
  return list;
}

ClusterSpec builtin_cluster(std::string_view name, std::int64_t steps) {
  std::string permitted;
  for (const Builtin& builtin : kBuiltins) {
    if (builtin.name == name) {
      ClusterSpec cluster = builtin.make(steps);
      cluster.name = builtin.name;
      cluster.description = builtin.description;
      return cluster;
    }
    permitted.append(permitted.empty() ? "" : ", ").append(builtin.name);
  }
  throw std::invalid_argument("cluster is \"" + std::string(name) + "\"; permitted: " + permitted);
}

}  // namespace isochron::sim
