#include <stdexcept>
#include <vector>

#include "small_cluster.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/sim/builtin.h"

namespace isochron::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two workers of one core each share 8 samples, 4 seconds a step; a lost worker is noticed after half a second.
const Options kPair{.global_batch = 8, .steps = 5, .failure_seconds = 0.5};

TEST(BspTest, AStepTakesAsLongAsItsSlowestWorker) {
  const ClusterSpec cluster = small_cluster({1, 3});
  const Options options{.global_batch = 8, .steps = 10};
  const Result uniform = simulate(cluster, options, "uniform");
  // 4 samples each: 4 s and 4/3 s; together 4 samples/s are possible, so 2 s a step.
  EXPECT_DOUBLE_EQ(uniform.total_seconds, 40.0);
  EXPECT_DOUBLE_EQ(uniform.first_step_seconds, 4.0);
  EXPECT_DOUBLE_EQ(uniform.step_seconds.p50, 4.0);
  EXPECT_DOUBLE_EQ(uniform.samples_per_second, 2.0);
  EXPECT_DOUBLE_EQ(uniform.share_of_peak, 0.5);
  EXPECT_DOUBLE_EQ(uniform.balance, (1.0 + 1.0 / 3.0) / 2.0);
  EXPECT_EQ(uniform.adjustments, 0);
  EXPECT_EQ(uniform.steps_to_balance, 10);
  EXPECT_THAT(uniform.batch_sizes, ElementsAre(4, 4));

  const Result oracle = simulate(cluster, options, "oracle");
  EXPECT_DOUBLE_EQ(oracle.total_seconds, 20.0);
  EXPECT_DOUBLE_EQ(oracle.share_of_peak, 1.0);
  EXPECT_EQ(oracle.steps_to_balance, 0);
  EXPECT_THAT(oracle.batch_sizes, ElementsAre(2, 6));
}

TEST(BspTest, OverheadAndPlateauAreInSamples) {
  ClusterSpec cluster = small_cluster({2, 1});
  cluster.workers[0].overhead = 3.0;
  cluster.workers[1].plateau = 10.0;
  const auto records = records_of(cluster, {.global_batch = 8, .steps = 1}, "uniform");
  // (3 + 4) / 2 cores; max(4, 10) / 1 core.
  EXPECT_DOUBLE_EQ(records[0].workers[0].compute_seconds, 3.5);
  EXPECT_DOUBLE_EQ(records[0].workers[1].compute_seconds, 10.0);
}

TEST(BspTest, RecordsWhereTheTimeWent) {
  ClusterSpec cluster = small_cluster({1, 2});
  cluster.workers[0].link.bytes_per_second = 10.0;
  const Options options{
      .global_batch = 8, .steps = 2, .network = {.gradient_bytes = 20.0, .buckets = 1, .overlap = false}};
  const auto records = records_of(cluster, options, "uniform");
  // The ring of two moves 2 x 1/2 x 20 bytes over the slowest link: 2 s after the 4 s of the slower worker.
  ASSERT_EQ(records.size(), 2U);
  EXPECT_DOUBLE_EQ(records[1].start_seconds, 6.0);
  EXPECT_DOUBLE_EQ(records[1].seconds, 6.0);
  EXPECT_DOUBLE_EQ(records[1].workers[0].wait_seconds, 0.0);
  EXPECT_DOUBLE_EQ(records[1].workers[1].wait_seconds, 2.0);
  EXPECT_DOUBLE_EQ(records[1].workers[1].exchange_seconds, 2.0);
}

TEST(BspTest, AKillAtAStepRedoesItWithoutTheWorker) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.changes = {at_step(2, "w1", Event::kKill)};
  // 2 x 4 s, then 0.5 s until it is noticed, then 3 x 8 s for one worker.
  EXPECT_DOUBLE_EQ(simulate(cluster, kPair, "uniform").total_seconds, 32.5);
}

TEST(BspTest, AKillWithinAStepLosesWhatWasComputed) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.changes = {at_seconds(5.0, "w1", Event::kKill)};
  const auto records = records_of(cluster, kPair, "uniform");
  // Step 1 starts at 4 s, is lost at 5 s, starts anew at 5.5 s and then takes 8 s.
  ASSERT_EQ(records.size(), 5U);
  EXPECT_DOUBLE_EQ(records[1].start_seconds, 4.0);
  EXPECT_DOUBLE_EQ(records[1].seconds, 9.5);
  ASSERT_EQ(records[1].workers.size(), 1U);
  EXPECT_EQ(records[1].workers[0].batch, 8);
  EXPECT_DOUBLE_EQ(records[1].workers[0].start_seconds, 5.5);
}

TEST(BspTest, TheLastWorkerMustNotBeKilled) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.changes = {at_step(1, "*", Event::kKill)};
  EXPECT_THROW((void)simulate(cluster, kPair, "uniform"), std::invalid_argument);
  EXPECT_THROW((void)simulate(cluster, kPair, "oracle"), std::invalid_argument);
}

TEST(BspTest, AStoppedWorkerStallsTheStepUntilItContinues) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.changes = {at_seconds(5.0, "w1", Event::kStop), at_seconds(7.0, "w1", Event::kContinue)};
  const auto records = records_of(cluster, kPair, "uniform");
  // Step 1 starts at 4 s; at 5 s w1 has 3 s left, which it computes from 7 s on.
  EXPECT_DOUBLE_EQ(records[1].seconds, 6.0);
  EXPECT_DOUBLE_EQ(records[1].workers[0].wait_seconds, 2.0);
  EXPECT_DOUBLE_EQ(records[1].workers[1].compute_seconds, 6.0);
  EXPECT_DOUBLE_EQ(records[2].seconds, 4.0);
}

TEST(BspTest, AWorkerMayBeStoppedFromTheStartOfAStepOrAfterItsLastGradient) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.changes = {at_step(1, "w1", Event::kStop), at_seconds(7.0, "w1", Event::kContinue)};
  // All 4 s of step 1, which starts at 4 s, are left at 7 s.
  EXPECT_DOUBLE_EQ(records_of(cluster, kPair, "uniform")[1].seconds, 7.0);

  cluster = small_cluster({1, 4});
  cluster.changes = {at_seconds(2.0, "w1", Event::kStop), at_seconds(10.0, "w1", Event::kContinue)};
  // w1 is done after 1 s, but cannot take part in the exchange before 10 s.
  EXPECT_DOUBLE_EQ(records_of(cluster, kPair, "uniform")[0].seconds, 10.0);
}

TEST(BspTest, AWorkerStoppedForEverIsAnError) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.changes = {at_step(1, "w1", Event::kStop), at_step(2, "w1", Event::kContinue)};
  try {
    (void)simulate(cluster, kPair, "uniform");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 1 waits for ever"));
  }
  cluster.changes.push_back(at_seconds(20.0, "w1", Event::kKill));
  // Step 1 starts at 4 s and is redone at 20.5 s by one worker; 4 x 8 s.
  EXPECT_DOUBLE_EQ(simulate(cluster, kPair, "uniform").total_seconds, 52.5);
}

TEST(BspTest, AJoinSharesTheWorkFromTheNextStepOn) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.workers[1].absent = true;
  cluster.changes = {at_seconds(3.0, "w1", Event::kJoin)};
  const auto records = records_of(cluster, kPair, "uniform");
  EXPECT_DOUBLE_EQ(records[0].seconds, 8.0);
  EXPECT_DOUBLE_EQ(records[1].seconds, 4.0);
  EXPECT_EQ(records[1].workers[1].id, 1U);
}

TEST(BspTest, AWorkerThatComesBackHasANewId) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.changes = {at_step(1, "w0", Event::kKill), at_step(2, "w0", Event::kJoin)};
  std::vector<std::string> events;
  std::vector<WorkerId> ids;
  (void)simulate(
      cluster,
      kPair,
      "uniform",
      {.step = [&](const StepRecord& record) { ids.push_back(record.workers.back().id); },
       .event =
           [&](const EventRecord& record) { events.push_back(record.event + " " + std::to_string(record.worker)); }});
  EXPECT_THAT(ids, ElementsAre(1, 1, 2, 2, 2));
  EXPECT_THAT(events, ElementsAre("kill 0", "join 2"));
}

TEST(BspTest, DynamicSwitchesAtItsStages) {
  const auto records = records_of(builtin_cluster("dynamic", 80), {.global_batch = 128, .steps = 80}, "uniform");
  // 32 samples of 10 ms on the smallest worker: 12, 8, 6, 4, 4, 6, 8 and 12 cores, ten steps each.
  const std::vector<double> smallest{12, 8, 6, 4, 4, 6, 8, 12};
  for (std::size_t step = 0; step < records.size(); ++step) {
    EXPECT_NEAR(records[step].seconds, 0.32 / smallest[step / 10], 1e-12) << step;
  }
}

TEST(BspTest, CountsTheStepsFromAChangeToAGoodSplit) {
  ClusterSpec cluster = small_cluster({1, 1});
  cluster.changes = {
      {.at_step = 4, .worker = "w0", .cores = 3.0},
      {.at_step = 6, .worker = "w0", .cores = 3.3},
      {.at_step = 7, .worker = "w0", .cores = 1.0}};
  const Options options{.global_batch = 8, .steps = 10};
  // Equal shares are good but for steps 4 to 6; the change by 1.1 does not count, the one back finds a good split.
  const Result result = simulate(cluster, options, "uniform");
  EXPECT_EQ(result.steps_to_balance, 0);
  EXPECT_EQ(result.speed_changes, 2);
  EXPECT_DOUBLE_EQ(result.recovery_steps_p50, 0.0);
  EXPECT_DOUBLE_EQ(result.recovery_steps_p90, 3.0);
}

TEST(BspTest, InterferenceComesAndGoes) {
  ClusterSpec cluster = small_cluster({1});
  cluster.workers[0].interference = {.slowdown = 2.0, .on = 1, .off = 2, .phase = 1};
  std::vector<double> seconds;
  for (const StepRecord& record : records_of(cluster, {.global_batch = 1, .steps = 6}, "uniform")) {
    seconds.push_back(record.seconds);
  }
  EXPECT_THAT(seconds, ElementsAre(1, 1, 2, 1, 1, 2));
}

}  // namespace
}  // namespace isochron::sim
