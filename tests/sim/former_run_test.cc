#include "isochron/core/trace/former_run.h"

#include <string>
#include <vector>

#include "small_cluster.h"
#include <gtest/gtest.h>

#include "isochron/sim/builtin.h"
#include "isochron/sim/simulate.h"

namespace isochron::sim {
namespace {

constexpr std::int64_t kRunSteps = 30;
constexpr int kRunSeeds = 8;

std::vector<FormerSpeed> speeds_of_a_run(const ClusterSpec& cluster, const Options& options) {
  FormerRun run;
  RunHeader header;
  for (std::size_t i = 0; i < cluster.workers.size(); ++i) {
    header.workers.push_back({.id = i, .name = cluster.workers[i].name, .kind = cluster.workers[i].kind});
  }
  run.add(header);
  Recorder recorder;
  recorder.step = [&run](const StepRecord& record) { run.add(record); };
  (void)simulate(cluster, options, "isochron", recorder);
  return run.speeds();
}

/// Total time over that of an oracle that starts balanced, first step included, of all seeds together.
double time_over_oracle(const std::string& name, bool start_from_former) {
  const ClusterSpec cluster = noisy(builtin_cluster(name, kRunSteps), 0.05);
  double total = 0.0;
  double oracle = 0.0;
  for (int seed = 0; seed < kRunSeeds; ++seed) {
    Options options{.global_batch = 384, .steps = kRunSteps, .seed = static_cast<std::uint64_t>(seed)};
    oracle += simulate(cluster, options, "oracle").total_seconds;
    if (start_from_former) {
      Options former = options;
      former.seed += 1000;  // another run, with noise of its own
      options.former = speeds_of_a_run(cluster, former);
    }
    total += simulate(cluster, options, "isochron").total_seconds;
  }
  return total / oracle;
}

TEST(StartFromTest, ThirtyStepsTakeWhatAnOracleTakesThatStartsBalanced) {
  for (const char* const name : {"hl2", "hl4", "hl8"}) {
    EXPECT_LE(time_over_oracle(name, /*start_from_former=*/true), 1.02) << name;
  }
  // The first step with equal shares takes 4.0 times as long as a balanced one on hl8 (32 of 48 cores against a
  // quarter), which is more than 2 % of thirty.
  EXPECT_GE(time_over_oracle("hl8", /*start_from_former=*/false), 1.03);
}

}  // namespace
}  // namespace isochron::sim
