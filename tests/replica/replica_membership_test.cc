// How replicas follow those who come and go, and go on from a saved state.
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/replica/job.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/replica/replica.h"

namespace isochron {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Workers come and go.

TEST(ReplicaTest, ADeathIsToldAndTheOthersTakeItsShare) {
  TestJob job(uniform(6), {{.name = "a"}, {.name = "b"}, {.name = "c"}}, 12);
  (void)job.compute();
  job[0].abandon();
  job[2].abandon();
  EXPECT_THAT(names(job.come_together({0, 2})), ElementsAre("death 1 b"));
  EXPECT_EQ(job[1].rank(), 1);
  EXPECT_EQ(job[1].workers()[1].id, 2U);
  EXPECT_THAT(job[1].plan().batches(), ElementsAre(3, 3));
  EXPECT_EQ(job[1].plan_under_way().position, 0);
}

TEST(ReplicaTest, TheCeilingOfWhoIsGoneIsForgotten) {
  TestJob job(uniform(6), {{}, {}, {}}, 12);
  const std::vector<StepReport> reports = job.compute({{}, {}, {.out_of_memory = true}});
  for (std::size_t rank = 0; rank < 3; ++rank) {
    (void)job[rank].redo(reports, 1.0);
  }
  EXPECT_THAT(job[0].state().numbers.at("ceilings.ceilings.count"), ElementsAre(1));
  (void)job.come_together({0, 1});
  EXPECT_THAT(job[0].state().numbers.at("ceilings.ceilings.count"), ElementsAre(0));
}

TEST(ReplicaTest, WhoWasEvictedByAnyIsToldAsEvicted) {
  TestJob job(uniform(6), {{}, {}, {.name = "c"}}, 12);
  job[1].note_eviction(2);
  EXPECT_THAT(names(job.come_together({0, 1})), ElementsAre("evicted 2 c"));
  EXPECT_THAT(job[1].progress(0).evicted, IsEmpty());
}

TEST(ReplicaTest, ANewcomerTakesOverTheJobAndGetsAnIdThatNobodyHad) {
  TestJob job(uniform(6), {{}, {}}, 24);
  (void)job.step();
  Replica third = Replica::newcomer(uniform(6), {.max_batch = 2, .name = "late"});
  third.open(24);
  job.add(std::move(third));
  EXPECT_EQ(job[2].progress(0).progress, ProgressReport::kNothing);
  EXPECT_THAT(names(job.come_together({0, 1, 2})), ElementsAre("join 2 late"));
  EXPECT_EQ(job[2].rank(), 2);
  EXPECT_EQ(job[2].step(), 1);
  EXPECT_EQ(job[2].state(), job[0].state());
  EXPECT_THAT(job[2].plan().batches(), ElementsAre(2, 2, 2));
}

TEST(ReplicaTest, ANewcomerWhoseAdmissionIsInterruptedIsStillOne) {
  TestJob job(uniform(6), {{}, {}}, 24);
  Replica third = Replica::newcomer(uniform(6), {});
  third.open(24);
  third.take_over(job[0].state());  // and then somebody is lost before all agree
  EXPECT_EQ(third.progress(0).progress, ProgressReport::kNothing);
  job.add(std::move(third));
  (void)job.come_together({0, 2});
  EXPECT_EQ(job[1].workers()[1].id, 2U);
}

TEST(ReplicaTest, AStepThatSomeOptimizerTookIsCountedThoughItsReportsAreLost) {
  TestJob job(uniform(6), {{}, {}, {}}, 12);
  (void)job.compute();
  job[0].abandon();  // did not get the average
  (void)job.come_together({0, 1});
  for (std::size_t rank : {0U, 1U}) {
    EXPECT_EQ(job[rank].step(), 1);
    EXPECT_EQ(job[rank].ledger().used(), 6);
    EXPECT_TRUE(std::isnan(job[rank].last_step()->loss));
    EXPECT_EQ(job[rank].last_step()->workers.size(), 3U);
  }
}

TEST(ReplicaTest, AStepThatNoOptimizerTookIsNot) {
  TestJob job(uniform(6), {{}, {}, {}}, 12);
  (void)job.compute();
  job[0].abandon();
  job[1].abandon();
  (void)job.come_together({0, 1});
  EXPECT_EQ(job[0].step(), 0);
  EXPECT_EQ(job[0].ledger().used(), 0);
}

TEST(ReplicaTest, WhoHasAllReportsIsFollowed) {
  TestJob job(uniform(6), {{}, {}, {}}, 12);
  const std::vector<StepReport> reports = job.compute({{.stop = true, .signal = 2}});
  (void)job[1].complete(reports, 1, 2);
  (void)job.come_together({0, 1});
  EXPECT_EQ(job[0].step(), 1);
  EXPECT_EQ(*job[0].last_step(), *job[1].last_step());
  EXPECT_TRUE(job[0].stopping());  // it never saw the reports that asked for it
  EXPECT_EQ(job[0].stop_signal(), 2);
}

TEST(ReplicaTest, BoundsChangeOnAllOrNot) {
  TestJob job(uniform(6), {{}, {}}, 12);
  const std::vector<BatchBounds> tight{{.min_batch = 1, .max_batch = 2}, {}};
  job[0].change_bounds(tight);
  EXPECT_THAT(job[0].plan().batches(), ElementsAre(2, 4));
  const std::vector<BatchBounds> impossible{{.max_batch = 2}, {.max_batch = 2}};
  EXPECT_THROW(job[1].change_bounds(impossible), std::invalid_argument);
  EXPECT_EQ(job[1].members()[0].max_batch, 6);  // B, as before
  EXPECT_THAT(job[1].plan().batches(), ElementsAre(3, 3));
}

TEST(ReplicaTest, WeightsFromOutsideChangeOnAllOrNot) {
  TestJob job({.global_batch = 6, .policy = "static"}, {{.weight = 1.0}, {.weight = 1.0}}, 12);
  std::vector<Worker> workers = job[0].members();
  workers[0].weight = 2.0;
  workers[1].weight = 1.0;
  job[0].change_workers(workers);
  EXPECT_THAT(job[0].decision().batch_sizes, ElementsAre(4, 2));
  std::swap(workers[0], workers[1]);  // not by rank
  EXPECT_THROW(job[0].change_workers(workers), std::invalid_argument);
  EXPECT_THAT(job[0].decision().batch_sizes, ElementsAre(4, 2));
  EXPECT_EQ(job[0].members()[0].weight, 2.0);
}

// As a value.

TEST(ReplicaTest, GoesOnFromItsStateOnAnotherNumberOfWorkers) {
  TestJob job(uniform(6), {{}, {}}, 24);
  (void)job.step();
  const State state = State::parse(job[0].state().serialize());
  TestJob more(uniform(6), {{}, {}, {}});
  for (std::size_t rank = 0; rank < 3; ++rank) {
    more[rank].restore(state);
    EXPECT_EQ(more[rank].position(), 6);  // before the data is known
    more[rank].open(24);
  }
  EXPECT_EQ(more[2].workers()[2].id, 2U);
  EXPECT_THAT(more[0].plan().slices, ElementsAre(Interval{6, 8}, Interval{8, 10}, Interval{10, 12}));
  TestJob fewer(uniform(6), {{}}, 24);
  fewer[0].restore(state);
  EXPECT_THAT(fewer[0].plan().slices, ElementsAre(Interval{6, 12}));
  fewer[0].abandon();
  // An id is not given twice: worker 1 is gone, so the next one is 2.
  EXPECT_EQ(fewer[0].progress(0).next_id, 2U);
}

TEST(ReplicaTest, AStateIsKeptUntilTheDataIsKnown) {
  TestJob job(uniform(6), {{}}, 24);
  (void)job.step();
  TestJob waiting(uniform(6), {{}});
  waiting[0].restore(job[0].state());
  EXPECT_EQ(waiting[0].state(), job[0].state());
  EXPECT_THROW(waiting[0].open(25), std::invalid_argument);
}

TEST(ReplicaTest, OptionsThatDifferAreRefusedByName) {
  TestJob job({.global_batch = 6, .policy = "uniform", .seed = 7, .last_batch = LastBatch::kDrop}, {{}}, 24);
  const State state = job[0].state();
  const auto refusal = [&](const JobSettings& options, std::int64_t dataset_size = 24) -> std::string {
    TestJob other(options, {{}}, dataset_size);
    const State before = other[0].state();
    try {
      other[0].restore(state);
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(other[0].state(), before);
      return error.what();
    }
    return "";
  };
  JobSettings options = job[0].options();
  EXPECT_EQ(refusal(options), "");
  EXPECT_EQ(refusal(options, 25), "the dataset's size is 25; permitted: that of the checkpoint, 24");
  options.global_batch = 5;
  EXPECT_EQ(refusal(options), "global_batch is 5; permitted: that of the checkpoint, 6");
  options = job[0].options();
  options.seed = 8;
  EXPECT_EQ(refusal(options), "seed is 8; permitted: that of the checkpoint, 7");
  options = job[0].options();
  options.last_batch = LastBatch::kKeep;
  EXPECT_EQ(refusal(options), "last_batch is keep; permitted: that of the checkpoint, drop");
  options = job[0].options();
  options.policy = "lbb";
  EXPECT_EQ(refusal(options), "policy is lbb; permitted: that of the checkpoint, uniform");
}

TEST(ReplicaTest, CeilingsAreForgottenRatherThanEndARunThatGoesOnWithFewer) {
  TestJob job(uniform(16), {{}, {}}, 32);
  const std::vector<StepReport> reports = job.compute({{.out_of_memory = true}, {}});
  (void)job[0].redo(reports, 1.0);
  TestJob alone(uniform(16), {{}}, 32);
  alone[0].restore(job[0].state());
  EXPECT_THAT(alone[0].plan().batches(), ElementsAre(16));
}

TEST(ReplicaTest, ARunThatGoesOnIsNotStopping) {
  TestJob job(uniform(6), {{}}, 24);
  (void)job.step({{.stop = true}});
  TestJob resumed(uniform(6), {{}}, 24);
  resumed[0].restore(job[0].state());
  EXPECT_FALSE(resumed[0].stopping());
}

}  // namespace
}  // namespace isochron
