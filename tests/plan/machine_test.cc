#include "isochron/plan/machine.h"

#include <stdexcept>

#include "machines.h"
#include <gtest/gtest.h>

namespace isochron::plan {
namespace {

TEST(MachineTest, SpeedDividesEveryCost) {
  Profile profile = small_profile(1.0, 0.5);
  profile.update_seconds = 0.25;
  profile.copy_seconds = 1e-9;
  const Machine half = make_machine(profile, 0.5, /*prepares_aside=*/true);
  EXPECT_DOUBLE_EQ(half.curve.seconds(4), 6.0);
  EXPECT_DOUBLE_EQ(half.update_seconds, 0.5);
  EXPECT_DOUBLE_EQ(half.copy_seconds, 2e-9);
  EXPECT_EQ(half.measured, 64);
}

TEST(MachineTest, SamplesArePreparedAsideOnlyWhereACoreIsFree) {
  Profile profile = small_profile(1.0, 0.5);
  profile.prepare_seconds = 0.25;
  // 4 samples: 3 s to compute, 1 s to prepare.
  EXPECT_DOUBLE_EQ(make_machine(profile, 1.0, true).curve.seconds(4), 3.0);
  EXPECT_DOUBLE_EQ(make_machine(profile, 1.0, false).curve.seconds(4), 4.0);
  profile.prepare_seconds = 1.0;  // now 4 s: the slower of the two counts
  EXPECT_DOUBLE_EQ(make_machine(profile, 1.0, true).curve.seconds(4), 4.0);

  profile.cores = 1.0;
  EXPECT_FALSE(has_spare_core(profile));
  profile.cores = 2.0;
  EXPECT_TRUE(has_spare_core(profile));
  profile.threads = 2;
  EXPECT_FALSE(has_spare_core(profile));
  profile.device = "cuda";
  EXPECT_TRUE(has_spare_core(profile));
}

TEST(MachineTest, AnEmulatedWorkerIsItsCores) {
  sim::ClusterSpec cluster;
  cluster.workers.resize(2);
  cluster.workers[0].name = "a";
  cluster.workers[1].name = "b";
  cluster.workers[1].cores = 0.25;
  cluster.workers[1].max_batch = 9;
  cluster.workers[1].noise.sigma = 0.1;
  const auto groups = emulated_machines(cluster, small_profile(1.0, 0.5));
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_DOUBLE_EQ(groups[0].machine.curve.seconds(4), 3.0);
  EXPECT_DOUBLE_EQ(groups[1].machine.curve.seconds(4), 12.0);
  EXPECT_EQ(groups[1].machine.name, "b");
  EXPECT_EQ(groups[1].machine.max_batch, 9);
  EXPECT_DOUBLE_EQ(groups[1].machine.noise, 0.1);
  EXPECT_EQ(count_machines(groups), 2);

  cluster.workers[0].absent = true;
  EXPECT_THROW((void)emulated_machines(cluster, small_profile(1.0, 0.5)), std::invalid_argument);
  cluster.workers[0].absent = false;
  cluster.changes.push_back({.at_step = 1, .worker = "a", .cores = 0.5});
  EXPECT_THROW((void)emulated_machines(cluster, small_profile(1.0, 0.5)), std::invalid_argument);
}

}  // namespace
}  // namespace isochron::plan
