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

/// Two shares of one GPU as measured with a Transformer of GPT-2's size: 3.3:1, fixed costs of a step, little noise; a
/// new batch size costs a third of a step, once.
ClusterSpec gpu_shares() {
  ClusterSpec cluster;
  cluster.sample_seconds = 0.0021;
  cluster.workers = {gpu("gpu-75", "cuda", 3.3, 0.0), gpu("gpu-25", "cuda", 1.0, 0.0)};
  cluster.workers.front().overhead = 30.0;
  cluster.workers.back().overhead = 12.0;
  for (WorkerSpec& worker : cluster.workers) {
    worker.noise.sigma = 0.005;
    worker.cold_seconds = 0.05;
  }
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
  cores.reserve(static_cast<std::size_t>(count));
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

constexpr auto kBuiltins = std::to_array<Builtin>({
    {.name = "hl1", .description = "4 equal workers, 12 cores each", .make = [](Steps) { return from_cores(kHl1); }},
    {.name = "hl2", .description = "12, 12, 8 and 16 cores", .make = [](Steps) { return from_cores(kHl2); }},
    {.name = "hl4", .description = "9, 9, 6 and 24 cores", .make = [](Steps) { return from_cores(kHl4); }},
    {.name = "hl8", .description = "6, 6, 4 and 32 cores", .make = [](Steps) { return from_cores(kHl8); }},
    {.name = "dynamic", .description = "hl1, 2, 4, 8, 8, 4, 2, 1 in equal stages", .make = dynamic},
    {.name = "h2", .description = "3 workers of 9, 12 and 18 cores", .make = [](Steps) { return from_cores(kH2); }},
    {.name = "h10", .description = "3 workers of 2, 17 and 20 cores", .make = [](Steps) { return from_cores(kH10); }},
    {.name = "gpu-cpu",
     .description = "a GPU that is 100 times as fast as the CPU beside it, flat up to 64 samples",
     .make = [](Steps) { return gpu_cpu(); }},
    {.name = "gpu-shares",
     .description = "75 and 25 % of a GPU: 3.3:1, fixed costs, and a new batch size costs 50 ms once",
     .make = [](Steps) { return gpu_shares(); }},
    {.name = "t4-p4",
     .description = "2 T4 and 2 P4, 8:1, flat up to 32 and 4 samples",
     .make = [](Steps) { return t4_p4(); }},
    {.name = "mixed16", .description = "16 workers, speeds from 1 to 8", .make = [](Steps) { return mixed(16); }},
    {.name = "mixed256", .description = "256 workers, speeds from 1 to 8", .make = [](Steps) { return mixed(256); }},
    {.name = "burstable",
     .description = "6 VMs that fall to 40 % of their speed when credits run out, and recover",
     .make = burstable},
    {.name = "spot", .description = "up to 6 spot machines that are taken away and come back", .make = spot},
    {.name = "uneven-noise",
     .description = "hl2 with 2 % noise, 20 % on the fastest worker",
     .make = [](Steps) { return uneven_noise(); }},
    {.name = "ceiling",
     .description = "hl4, 5 % noise, memory for 480 samples on the fastest worker",
     .make = [](Steps) { return ceiling(); }},
    {.name = "affine-dynamic",
     .description = "dynamic, 5 % noise, each step costs as much as 24 samples more",
     .make = affine_dynamic},
    {.name = "periodic",
     .description = "hl2, 5 % noise, a co-tenant slows the fastest worker 1.4 times, 20 steps on, 20 off",
     .make = [](Steps) { return periodic(); }},
    {.name = "autocorrelated",
     .description = "hl2, 10 % noise with an autocorrelation of 0.9",
     .make = [](Steps) { return with_noise(from_cores(kHl2), {.sigma = 0.1, .autocorrelation = 0.9}); }},
    {.name = "drifting",
     .description = "hl4, 5 % noise, speeds drift by 1 % a step",
     .make = [](Steps) { return with_noise(from_cores(kHl4), {.sigma = 0.05, .drift = 0.01}); }},
    {.name = "shared-noise",
     .description = "hl4, 2 % noise, and 10 % that all workers share",
     .make =
         [](Steps) {
           ClusterSpec cluster = with_noise(from_cores(kHl4), {.sigma = 0.02});
           cluster.common_noise = 0.1;
           return cluster;
         }},
    {.name = "spiky",
     .description = "hl4, 5 % noise, 1 % of the steps take 3 to 10 times as long",
     .make = [](Steps) { return with_noise(from_cores(kHl4), {.sigma = 0.05, .spike_probability = 0.01}); }},
});

}  // namespace

std::vector<BuiltinHelp> builtin_clusters() {
  std::vector<BuiltinHelp> list;
  list.reserve(kBuiltins.size());
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
