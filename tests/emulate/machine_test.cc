#include "isochron/emulate/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/sim/builtin.h"

namespace isochron::emulate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<double> cores_of(const sim::ClusterSpec& cluster) {
  std::vector<double> cores;
  for (const sim::WorkerSpec& worker : cluster.workers) {
    cores.push_back(worker.cores);
  }
  return cores;
}

TEST(MachineTest, FitsThePublishedClustersToTwoCores) {
  const auto fitted = [](const char* name) { return cores_of(fit_to_machine(sim::builtin_cluster(name, 80), 2.0)); };
  EXPECT_THAT(fitted("hl1"), ElementsAre(0.375, 0.375, 0.375, 0.375));
  EXPECT_THAT(fitted("hl2"), ElementsAre(0.375, 0.375, 0.25, 0.5));
  EXPECT_THAT(fitted("hl4"), ElementsAre(0.28125, 0.28125, 0.1875, 0.75));
  EXPECT_THAT(fitted("hl8"), ElementsAre(0.1875, 0.1875, 0.125, 1.0));
}

TEST(MachineTest, TakesOneFactorForAllStages) {
  const sim::ClusterSpec cluster = fit_to_machine(sim::builtin_cluster("dynamic", 80), 16.0);
  EXPECT_EQ(cluster.workers.front().cores, 12.0 / 32) << "sixteen cores would hold more, but hl8's fastest is at one";
  double most = 0.0;
  for (const sim::Change& change : cluster.changes) {
    most = std::max(most, *change.cores);
  }
  EXPECT_EQ(most, 1.0);
}

TEST(MachineTest, LeavesAQuarterOfTheMachine) {
  // 3/4 of one core for 48 cores.
  EXPECT_THAT(
      cores_of(fit_to_machine(sim::builtin_cluster("hl8", 80), 1.0)),
      ElementsAre(6.0 / 64, 6.0 / 64, 4.0 / 64, 32.0 / 64));
}

TEST(MachineTest, DoubtsWhatCannotBe) {
  EXPECT_THAT(warnings_about(fit_to_machine(sim::builtin_cluster("dynamic", 80), 2.0), 2.0), IsEmpty());
  sim::ClusterSpec cluster;
  cluster.workers = {{.name = "a", .cores = 0.5}, {.name = "b", .cores = 0.75}};
  cluster.changes = {{.at_step = 3, .worker = "b", .cores = 1.75}};
  EXPECT_THAT(
      warnings_about(cluster, 2.0),
      ElementsAre(HasSubstr("worker \"b\" has 1.75 cores"), HasSubstr("2.25 cores together, the machine 2")));
}

}  // namespace
}  // namespace isochron::emulate
