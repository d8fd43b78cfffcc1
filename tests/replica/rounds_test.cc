#include "isochron/core/replica/rounds.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "tests/replica/job.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

JobSettings local(std::int64_t global_batch, std::int64_t steps) {
  JobSettings options = uniform(global_batch);
  options.sync = Sync::kLocal;
  options.rounds.steps = steps;
  return options;
}

/// A round in which rank k computes at seconds_per_sample[k]; returns how long each took.
std::vector<double> compute_round(TestJob& job, const std::vector<double>& seconds_per_sample, double exchange = 0.0) {
  std::vector<StepReport> reports;
  std::vector<double> seconds;
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    const StepPlan& plan = job[rank].plan();
    seconds.push_back(static_cast<double>(plan.mine.size()) * seconds_per_sample[rank]);
    reports.push_back(job[rank].report({.seconds = seconds.back(), .exchange = exchange}));
  }
  (void)job.complete(reports);
  return seconds;
}

TEST(RoundsTest, ARoundIsAStepOfSeveralGlobalBatchesInAsManyLocalSteps) {
  TestJob job(local(8, 3), {{}, {.max_batch = 3}}, 40);
  const StepPlan& plan = job[0].plan();
  EXPECT_EQ(plan.step_size, 24);
  EXPECT_EQ(plan.local_steps, 3);
  EXPECT_THAT(plan.slices, ElementsAre(Interval{0, 15}, Interval{15, 24}));  // 5 and 3 of every 8
  EXPECT_THAT(plan.parts(), ElementsAre(Interval{0, 5}, Interval{5, 10}, Interval{10, 15}));
  EXPECT_EQ(plan.loss_weight, 1.0);  // changes are weighted in place of losses
  EXPECT_EQ(plan.digest, job[1].plan().digest);
  job[0].abandon();
  job[1].abandon();
  EXPECT_FALSE(job.step().epoch_finished);
  // 16 are left, which are two local steps.
  EXPECT_EQ(job[1].plan().local_steps, 2);
  EXPECT_THAT(job[1].plan_under_way().parts(), ElementsAre(Interval{34, 37}, Interval{37, 40}));
  job[1].abandon();
  EXPECT_TRUE(job.step().epoch_finished);
  EXPECT_TRUE(job[0].ledger().complete());
}

TEST(RoundsTest, WhatDoesNotFillAGlobalBatchIsDroppedAndARoundMayBeBounded) {
  JobSettings options = local(8, 4);
  options.last_batch = LastBatch::kDrop;
  TestJob job(options, {{}, {}}, 45);  // 5 batches, and 5 samples that are dropped
  EXPECT_EQ(job[0].plan(0, 16).step_size, 16);
  job[0].abandon();
  EXPECT_EQ(job.step().record.position, 0);
  EXPECT_EQ(job[0].position(), 32);
  EXPECT_EQ(job[0].plan().step_size, 8);
  job[0].abandon();
  EXPECT_TRUE(job.step().epoch_finished);
}

TEST(RoundsTest, PartsAreNearlyEqualAndNoneIsEmpty) {
  EXPECT_THAT(
      Rounds::parts({.first = 3, .last = 14}, 4),
      ElementsAre(Interval{3, 6}, Interval{6, 9}, Interval{9, 12}, Interval{12, 14}));
  EXPECT_THAT(Rounds::parts({.first = 0, .last = 2}, 4), ElementsAre(Interval{0, 1}, Interval{1, 2}));
  EXPECT_THAT(Rounds::parts({.first = 7, .last = 7}, 4), ElementsAre());
}

// The speeds are 10 : 1.3 : 1, so that of 16 samples the slowest gets 1.3: as whole samples the step would take 1.54
// times as long as it need, in a round of 32 batches it is 41.6 of 512, at most half a sample off.
TEST(RoundsTest, AllEndTogetherThoughTheShareOfAStepIsNoWholeNumber) {
  JobSettings options = local(16, 32);
  options.policy = "isochron";
  TestJob job(options, {{}, {}, {}}, 1 << 20);
  std::vector<double> seconds;
  for (int round = 0; round < 40; ++round) {
    seconds = compute_round(job, {0.1, 1.0 / 1.3, 1.0});
  }
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  EXPECT_GT(*least / *most, 0.95);
}

TEST(RoundsTest, ChangesAreWeightedByWhatLossesAreMeansOver) {
  TestJob job(local(8, 2), {{}, {.max_batch = 2}}, 32);
  std::vector<StepReport> reports = job.compute();
  EXPECT_EQ(job[0].average_weight(reports), 12.0 / 16.0);
  EXPECT_EQ(job[1].average_weight(reports), 4.0 / 16.0);
  reports[0].items = 30.0;  // tokens
  reports[1].items = 90.0;
  EXPECT_EQ(job[0].average_weight(reports), 0.25);
  EXPECT_EQ(job[1].average_weight(reports), 0.75);
  JobSettings plain = local(8, 2);
  plain.weighting = Weighting::kMean;
  TestJob equal(plain, {{}, {.max_batch = 2}}, 32);
  EXPECT_EQ(equal[1].average_weight(equal.compute()), 0.5);
}

// Local steps take 0.1 s, an exchange 2 s: 5 % of the time are 380 steps, 38 s between two exchanges.
TEST(RoundsTest, TheLengthOfARoundFollowsFromWhatExchangesTake) {
  TestJob job(local(10, 0), {{}, {}}, 1 << 30);
  EXPECT_EQ(job[0].round_steps(), 1);
  (void)compute_round(job, {0.02, 0.01});
  EXPECT_EQ(job[0].round_steps(), 1);  // nothing is known of the exchange yet
  std::vector<std::int64_t> lengths;
  for (int round = 0; round < 6; ++round) {
    (void)compute_round(job, {0.02, 0.01}, 2.0);
    lengths.push_back(job[0].round_steps());
  }
  EXPECT_THAT(lengths, ElementsAre(8, 64, 380, 380, 380, 380));
  EXPECT_EQ(job[1].round_steps(), 380);
  for (int round = 0; round < 40; ++round) {
    (void)compute_round(job, {0.02, 0.01}, 0.001);  // the network got faster
  }
  EXPECT_EQ(job[0].round_steps(), 1);
}

TEST(RoundsTest, TheLengthOfARoundIsPartOfTheState) {
  TestJob job(local(10, 0), {{}, {}}, 1 << 20);
  (void)compute_round(job, {0.02, 0.01}, 2.0);
  (void)compute_round(job, {0.02, 0.01}, 2.0);
  TestJob later(local(10, 0), {{}, {}}, 1 << 20);
  for (std::size_t rank : {0U, 1U}) {
    later[rank].restore(job[rank].state());
    EXPECT_EQ(later[rank].round_steps(), job[rank].round_steps());
  }
  (void)compute_round(job, {0.02, 0.01}, 2.0);
  (void)compute_round(later, {0.02, 0.01}, 2.0);
  EXPECT_EQ(later[0].round_steps(), job[0].round_steps());
  EXPECT_EQ(later[0].state(), job[0].state());
  TestJob bsp(uniform(10), {{}, {}}, 1 << 20);
  EXPECT_THAT(
      [&] { bsp[0].restore(job[0].state()); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("sync is 'bsp'; permitted: 'local', as in the checkpoint")));
  EXPECT_THAT(
      [&] { job[0].restore(bsp[0].state()); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("sync is 'local'; permitted: another one")));
}

// Memory does not hold the 8 samples of a local step, of which a round has five.
TEST(RoundsTest, AMemoryCeilingIsOfALocalStep) {
  TestJob job(local(16, 5), {{}, {}}, 1 << 20);
  (void)job[0].plan();
  (void)job[1].plan();
  EXPECT_TRUE(job[1].abandon_for_memory(false));
  job[0].abandon();
  const std::vector<EventRecord> events = job.come_together({0, 1});
  EXPECT_THAT(names(events), ElementsAre(HasSubstr("with 8 samples")));
  const StepPlan& plan = job[0].plan();
  EXPECT_EQ(plan.step_size, 80);
  EXPECT_LT(plan.batches()[1], 40);
  EXPECT_EQ(plan.batches()[0] + plan.batches()[1], 80);
  EXPECT_LT(job[1].plan().parts().front().size(), 8);
}

// With a ceiling of 6.1 samples a round of 16 steps would have 98, and one of its steps 7 again, without end.
TEST(RoundsTest, EveryLackOfMemoryMakesTheLocalStepsSmaller) {
  TestJob job(local(16, 16), {{}, {}}, 1 << 20);
  for (std::int64_t before = 9, now = 8; before > 2; before = now) {
    (void)job[0].plan();
    now = job[1].plan().parts().front().size();
    ASSERT_LT(now, before);
    ASSERT_TRUE(job[1].abandon_for_memory(false));
    job[0].abandon();
    (void)job.come_together({0, 1});
  }
}

}  // namespace
}  // namespace isochron
