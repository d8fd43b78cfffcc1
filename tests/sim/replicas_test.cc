#include "isochron/sim/replicas.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "small_cluster.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/policy/registry.h"
#include "isochron/sim/builtin.h"

namespace isochron::sim {
namespace {

using ::testing::ElementsAre;

/// Every step and event of a run as the log has it, times with all their digits.
std::vector<std::string> log_of(const ClusterSpec& cluster, const Options& options, const std::string& policy) {
  std::vector<std::string> log;
  const auto add = [&log](const auto& record) { log.push_back(to_json(record)); };
  (void)simulate(cluster, options, policy, {.step = add, .event = add});
  return log;
}

/// Workers die within steps and between them, come back and are slowed down.
ClusterSpec restless() {
  ClusterSpec cluster = noisy(builtin_cluster("spot", 40), 0.05);
  cluster.changes.push_back(at_seconds(0.3, "w3", Event::kKill));
  cluster.changes.push_back(at_seconds(0.9, "w0", Event::kKill));
  cluster.changes.push_back(at_step(20, "w0", Event::kJoin));
  cluster.changes.push_back(at_step(20, "w3", Event::kJoin));
  cluster.changes.push_back({.at_step = 22, .worker = "w0", .cores = 1.0});
  return cluster;
}

/// The ways in which steps are planned: by count, in rounds, by cost, and what an oracle says.
std::vector<Options> ways() {
  const Options plain{.global_batch = 128, .steps = 40, .seed = 1};
  std::vector<Options> list(6, plain);
  list[1].nominal_weights = true;
  list[2].sync = Sync::kLocal;
  list[2].round_steps = 3;
  list[3].sync = Sync::kLocal;
  list[3].network = {.gradient_bytes = 1e5};
  list[4].lengths = Lengths{};
  list[5].lengths = Lengths{.collation = Collation::kPadded, .by_cost = false};
  return list;
}

TEST(ReplicasTest, AReplicaForEveryWorkerSaysWhatOneForAllSays) {
  ClusterSpec cluster = restless();
  for (WorkerSpec& worker : cluster.workers) {
    worker.link.bytes_per_second = 12.5e6;
  }
  std::vector<std::string> policies{"oracle", "late-oracle"};
  for (const PolicyHelp& help : policy_help()) {
    policies.push_back(help.name);
  }
  for (const std::string& policy : policies) {
    for (Options options : ways()) {
      const std::vector<std::string> one = log_of(cluster, options, policy);
      options.replica_each = true;
      EXPECT_EQ(log_of(cluster, options, policy), one) << policy;
    }
  }
}

// w1 and w2 come before step 1, and w1 is gone again before it begins: it has had the id 1, and w2 has 2.
TEST(ReplicasTest, WhoJoinsAndDiesBetweenTwoStepsWasThere) {
  ClusterSpec cluster = small_cluster({1, 1, 1});
  cluster.workers[1].absent = cluster.workers[2].absent = true;
  cluster.changes = {at_step(1, "w1", Event::kJoin), at_step(1, "w1", Event::kKill), at_step(1, "w2", Event::kJoin)};
  std::vector<WorkerId> ids;
  for (const StepRecord& record : records_of(cluster, {.global_batch = 8, .steps = 2}, "uniform")) {
    ids.push_back(record.workers.back().id);
  }
  EXPECT_THAT(ids, ElementsAre(0, 2));
}

TEST(ReplicasTest, IdsCountThoseWhoCome) {
  ClusterSpec cluster = small_cluster({1, 1, 1});
  cluster.workers[0].absent = true;
  cluster.changes = {at_step(1, "w0", Event::kJoin)};
  std::vector<std::string> log = log_of(cluster, {.global_batch = 9, .steps = 2}, "uniform");
  EXPECT_NE(log[0].find(R"("workers":[0,1])"), std::string::npos) << log[0];
  EXPECT_NE(log[1].find(R"("event":"join","worker":2,"words":"w0")"), std::string::npos) << log[1];
  EXPECT_NE(log[2].find(R"("workers":[0,1,2])"), std::string::npos) << log[2];
}

// Nobody is left who knows the job.
TEST(ReplicasTest, AJobWhoseWorkersAreAllLostAtOnceIsOver) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.workers[1].absent = true;
  cluster.changes = {at_step(1, "w0", Event::kKill), at_step(1, "w1", Event::kJoin)};
  EXPECT_THROW((void)simulate(cluster, {.global_batch = 8, .steps = 2}, "uniform"), std::invalid_argument);
}

// As in a job, where the deal knows no granularity.
TEST(ReplicasTest, GranularitiesAreRefusedWithLengthsByCost) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.workers[1].granularity = 2;
  Options options{.global_batch = 8, .steps = 2, .lengths = Lengths{}};
  EXPECT_THROW((void)simulate(cluster, options, "uniform"), std::invalid_argument);
  options.lengths->by_cost = false;
  EXPECT_EQ(simulate(cluster, options, "uniform").steps, 2);
}

}  // namespace
}  // namespace isochron::sim
