#include "isochron/core/replica/replica.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/failure.h"
#include "tests/replica/job.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Plans.

TEST(ReplicaTest, APlanSaysWhoTakesWhatAndHowMuchItCounts) {
  TestJob job(uniform(8), {{}, {.max_batch = 2}}, 20);
  const StepPlan& plan = job[1].plan();
  EXPECT_EQ(plan.step, 0);
  EXPECT_EQ(plan.epoch, 0);
  EXPECT_EQ(plan.position, 0);
  EXPECT_EQ(plan.step_size, 8);
  EXPECT_THAT(plan.slices, ElementsAre(Interval{0, 6}, Interval{6, 8}));
  EXPECT_EQ(plan.mine, (Interval{6, 8}));
  EXPECT_EQ(plan.loss_weight, 0.5);  // 2 * 2 / 8
  EXPECT_EQ(plan.digest, job[0].plan().digest);
  EXPECT_EQ(job[0].plan_under_way().loss_weight, 1.5);
}

TEST(ReplicaTest, TheLastStepOfAnEpochMayBeShort) {
  TestJob job(uniform(8), {{}, {}}, 11);
  EXPECT_FALSE(job.step().epoch_finished);
  EXPECT_EQ(job[0].plan().step_size, 3);
  EXPECT_THAT(job[0].plan_under_way().batches(), ElementsAre(2, 1));
  EXPECT_EQ(job[0].plan_under_way().loss_weight, 4.0 / 3.0);
  job[0].abandon();
  EXPECT_TRUE(job.step().epoch_finished);
  EXPECT_TRUE(job[0].ledger().complete());
  EXPECT_EQ(job[0].epoch(), 1);
  EXPECT_EQ(job[0].position(), 0);
}

TEST(ReplicaTest, AGlobalBatchAboveTheDatasetIsRefused) {
  const auto refusal = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  const std::string words = "global_batch is 12; permitted: up to 11, the samples that there are";
  Replica replica(uniform(12), {{}, {}}, 0);
  EXPECT_EQ(refusal([&] { replica.open(11); }), words);
  replica.open(12);
  EXPECT_EQ(refusal([&] { (void)replica.change_data(11, {}); }), words);
  Replica streaming(uniform(12), {{}, {}}, 0);
  streaming.open_stream();  // whose length nobody knows
  EXPECT_EQ(streaming.plan(3).step_size, 3);
}

TEST(LossWeightTest, AveragesToOneAndRefusesNonsense) {
  double sum = 0;
  for (const std::int64_t batch : {5, 9, 17, 33}) {
    sum += loss_weight(batch, 64, 4);
  }
  EXPECT_DOUBLE_EQ(sum / 4, 1);
  EXPECT_DOUBLE_EQ(loss_weight(33, 64, 4), 33.0 * 4 / 64);
  EXPECT_DOUBLE_EQ(loss_weight(0, 64, 4), 0);
  EXPECT_THROW(loss_weight(65, 64, 4), std::invalid_argument);
  EXPECT_THROW(loss_weight(-1, 64, 4), std::invalid_argument);
  EXPECT_THROW(loss_weight(0, 0, 4), std::invalid_argument);
  EXPECT_THROW(loss_weight(1, 64, 0), std::invalid_argument);
}

TEST(ReplicaTest, AnEmptyShareCountsForNothingWhateverTheWeighting) {
  JobSettings options = uniform(1);
  for (const Weighting weighting : {Weighting::kExact, Weighting::kMean}) {
    options.weighting = weighting;
    TestJob job(options, {{.min_batch = 0}, {.min_batch = 0}}, 4);
    EXPECT_EQ(job[0].plan().loss_weight, weighting == Weighting::kExact ? 2.0 : 1.0);
    EXPECT_EQ(job[1].plan().loss_weight, 0.0);
  }
}

TEST(ReplicaTest, ADigestTellsStepsPlacesAndRostersApart) {
  TestJob job(uniform(8), {{}, {}}, 16);
  std::vector<std::uint64_t> digests;
  for (int step = 0; step < 4; ++step) {  // two epochs
    digests.push_back(job.compute().front().digest);
    (void)job[0].abandon();
    (void)job[1].abandon();
    (void)job.step();
  }
  TestJob other(uniform(8), {{}, {.max_batch = 3}}, 16);
  digests.push_back(other.compute().front().digest);
  TestJob alone(uniform(8), {{}}, 16);
  digests.push_back(alone.compute().front().digest);
  JobSettings faster = uniform(8);
  faster.rate = {.rule = RateRule::kLinear, .reference_batch = 4};
  TestJob rate(faster, {{}, {}}, 16);
  digests.push_back(rate.compute().front().digest);
  std::ranges::sort(digests);
  EXPECT_EQ(std::ranges::adjacent_find(digests), digests.end());
}

TEST(ReplicaTest, AStreamIsDealtInItsOwnOrderUntilItEnds) {
  TestJob job(uniform(4), {{}, {}});
  for (std::size_t rank : {0U, 1U}) {
    job[rank].open_stream();
    EXPECT_THROW((void)job[rank].plan(0), std::invalid_argument);
    EXPECT_THROW((void)job[rank].plan(5), std::invalid_argument);
  }
  for (const std::int64_t samples : {4, 3}) {
    std::vector<StepReport> reports;
    for (std::size_t rank : {0U, 1U}) {
      EXPECT_EQ(job[rank].plan(samples).step_size, samples);
      reports.push_back(job[rank].report({}));
    }
    (void)job.complete(reports);
  }
  EXPECT_EQ(job[0].position(), 7);
  job[0].end_epoch();
  EXPECT_EQ(job[0].epoch(), 1);
  EXPECT_EQ(job[0].position(), 0);
  EXPECT_TRUE(job[0].ledger().complete());
  EXPECT_EQ(job[0].ledger().size(), 7);
}

TEST(ReplicaTest, PartsOfAStreamAreDealtAsTheWorkersHaveThem) {
  TestJob job(uniform(4), {{}, {}});
  std::vector<StepReport> reports;
  for (std::size_t rank : {0U, 1U}) {
    job[rank].open_stream();
    EXPECT_THROW((void)job[rank].plan_parts(std::vector<std::int64_t>{3}), std::invalid_argument);
    EXPECT_THROW((void)job[rank].plan_parts(std::vector<std::int64_t>{3, -1}), std::invalid_argument);
    EXPECT_THROW((void)job[rank].plan_parts(std::vector<std::int64_t>{3, 2}), std::invalid_argument);
    EXPECT_THROW((void)job[rank].plan_parts(std::vector<std::int64_t>{0, 0}), std::invalid_argument);
    const StepPlan& plan = job[rank].plan_parts(std::vector<std::int64_t>{0, 3});
    EXPECT_EQ(plan.batches(), (std::vector<std::int64_t>{0, 3}));
    EXPECT_EQ(plan.loss_weight, rank == 0 ? 0.0 : 2.0);  // 3 K / 3
    reports.push_back(job[rank].report({}));
  }
  (void)job.complete(reports);
  EXPECT_EQ(job[0].position(), 3);
}

TEST(ReplicaTest, AnEpochOfADatasetMayEndEarly) {
  TestJob job(uniform(4), {{}, {}}, 10);
  (void)job.complete(job.compute());
  for (std::size_t rank : {0U, 1U}) {
    job[rank].end_epoch();
    EXPECT_EQ(job[rank].epoch(), 1);
    EXPECT_EQ(job[rank].position(), 0);
    EXPECT_FALSE(job[rank].ledger().complete());
  }
  (void)job.complete(job.compute());
  EXPECT_EQ(job[0].epoch(), 1);
  EXPECT_EQ(job[0].position(), 4);
  EXPECT_EQ(job[0].ledger().used(), 4);
}

TEST(ReplicaTest, GoesToOtherDataAndBack) {
  TestJob job(uniform(4), {{}, {}}, 10);
  (void)job.complete(job.compute());
  std::vector<State> places;
  for (std::size_t rank : {0U, 1U}) {
    places.push_back(job[rank].change_data(8, std::nullopt));
    EXPECT_EQ(job[rank].position(), 0);
  }
  (void)job.complete(job.compute());
  (void)job.complete(job.compute());
  EXPECT_EQ(job[0].epoch(), 1);
  EXPECT_TRUE(job[0].ledger().complete());
  EXPECT_EQ(job[0].step(), 3);
  for (std::size_t rank : {0U, 1U}) {
    EXPECT_THROW((void)job[rank].change_data(9, places[rank]), std::invalid_argument);
    (void)job[rank].change_data(10, places[rank]);
    EXPECT_EQ(job[rank].epoch(), 0);
    EXPECT_EQ(job[rank].position(), 4);
    EXPECT_EQ(job[rank].ledger().used(), 4);
  }
}

// Completed steps.

TEST(ReplicaTest, DecidesWhatAControllerDecidesThatIsToldTheSame) {
  JobSettings options{.global_batch = 60, .policy = "isochron"};
  options.rate = {.rule = RateRule::kAdaScale, .reference_batch = 15};
  const std::vector<Worker> workers{{.id = 0, .max_batch = 60}, {.id = 1, .max_batch = 60}, {.id = 2, .max_batch = 60}};
  TestJob job(options, workers, 60 * 50);
  Controller controller({.workers = workers, .global_batch = 60}, {.policy = "isochron", .rate = options.rate});
  for (int step = 0; step < 120; ++step) {
    std::vector<StepReport> reports = job.compute([&] {
      std::vector<StepReport> measured;
      for (std::size_t k = 0; k < 3; ++k) {
        const auto batch = static_cast<double>(controller.decision().batch_sizes[k]);
        const double speed = static_cast<double>(k + 1) * (step > 60 && k == 2 ? 0.5 : 1.0);
        measured.push_back(
            {.seconds = 0.01 + batch / (20 * speed), .sync_points = 3, .usage = {.cpu = 0.5, .memory = 0.2}});
      }
      return measured;
    }());
    if (step > 0) {  // what every worker measured of the step before
      EXPECT_EQ(reports[1].global_square, 1.5 + step - 1);
      controller.observe_gradients(make_moments(reports));
    }
    for (std::size_t k = 0; k < 3; ++k) {
      job[k].measure_gradient(2.0 + static_cast<double>(k), 1.5 + step);
    }
    controller.observe(make_telemetry(reports, controller.roster().workers, step));
    (void)job.complete(reports);
    ASSERT_EQ(job[2].decision().batch_sizes, controller.decision().batch_sizes) << step;
    ASSERT_EQ(job[2].decision().learning_rate_factor, controller.decision().learning_rate_factor) << step;
    ASSERT_EQ(job[2].decision().words, controller.decision().words) << step;
  }
  EXPECT_GT(job[0].decision().learning_rate_factor, 1.0);
  EXPECT_GT(job[0].decision().batch_sizes[1], job[0].decision().batch_sizes[0]);
}

TEST(KnownSizesTest, TheFirstStepWithASizeTellsNothingOfAGpu) {
  KnownSizes of_gpu(false);
  EXPECT_FALSE(of_gpu.add(64));
  EXPECT_TRUE(of_gpu.add(64));
  EXPECT_FALSE(of_gpu.add(65));
  EXPECT_TRUE(of_gpu.add(64));
  KnownSizes of_cpu(true);
  EXPECT_TRUE(of_cpu.add(64));
}

TEST(ReplicaTest, TheFirstStepWithASizeSaysNothingAboutAGpu) {
  Replica gpu(uniform(8), {{}}, 0, {.cpu = false});
  Replica cpu(uniform(8), {{}}, 0);
  gpu.open(24);
  cpu.open(24);
  const auto warm = [](Replica& replica, const StepReport& measured) {
    (void)replica.plan();
    const StepReport report = replica.report(measured);
    (void)replica.complete(std::vector{report}, 0, 0);
    return report.warm;
  };
  EXPECT_FALSE(warm(gpu, {}));
  EXPECT_TRUE(warm(gpu, {}));
  EXPECT_TRUE(warm(cpu, {}));
  EXPECT_FALSE(warm(cpu, {.warm = false}));  // such as one that compiled
}

TEST(ReplicaTest, AStopRequestAndANewcomerReachEverybody) {
  TestJob job(uniform(4), {{}, {}}, 40);
  StepOutcome outcome = job.step({{.newcomer = true}, {}});
  EXPECT_TRUE(outcome.newcomer);
  EXPECT_FALSE(outcome.stop);
  outcome = job.step({{}, {.newcomer = true}});
  EXPECT_FALSE(outcome.newcomer);  // rank 0 knows
  outcome = job.step({{.stop = true}, {.signal = 15}});
  EXPECT_TRUE(outcome.stop);
  EXPECT_EQ(outcome.stop_signal, 15);
  EXPECT_TRUE(job[0].stopping());
}

TEST(ReplicaTest, TheStateBeforeAStepIsThereWhileItIsUnderWay) {
  TestJob job(uniform(4), {{}, {}}, 12);
  (void)job.step();
  const State before = job[0].state();
  (void)job[0].plan();
  EXPECT_EQ(job[0].state_before_step(), before);
  (void)job[0].report({.seconds = 1.0, .loss = 2.0});
  job[0].measure_gradient(1.0, 2.0);
  EXPECT_EQ(job[0].state_before_step(), before);
}

TEST(ReplicaTest, AnEpochThatLosesASampleIsFoundOut) {
  // Proves that the check at the end of an epoch can fail: the place is moved back without the ledger.
  TestJob job(uniform(4), {{}}, 8);
  (void)job.step();
  State state = job[0].state();
  state.numbers.at("place.position") = {0.0};
  state.numbers.at("place.ledger.used") = {0.0, 2.0};
  TestJob resumed(uniform(4), {{}}, 8);
  resumed[0].restore(state);
  (void)resumed.step();
  EXPECT_TRUE(resumed.step().epoch_finished);  // position 0 begins a new ledger
  state.numbers.at("place.position") = {4.0};
  TestJob damaged(uniform(4), {{}}, 8);
  damaged[0].restore(state);
  EXPECT_THROW((void)damaged.step(), InvariantError);
}

TEST(ReplicaTest, AForeignDigestIsAnErrorOnAllAndChangesNothing) {
  TestJob job(uniform(6), {{}, {}, {}}, 12);
  std::vector<StepReport> reports = job.compute();
  reports[2].digest ^= 1U;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(
        failure([&] { (void)job[rank].complete(reports, 0, 0); }), HasSubstr("rank 2 does not agree with rank 0"));
  }
  reports[2].digest ^= 1U;
  EXPECT_EQ(job.complete(reports).record.step, 0);
  EXPECT_EQ(job[0].ledger().used(), 6);
}

TEST(ReplicaTest, AnAbandonedStepIsPlannedAgainAsItWas) {
  TestJob job(uniform(6), {{}, {}}, 12);
  const std::uint64_t digest = job.compute().front().digest;
  job[0].abandon();
  job[1].abandon();
  EXPECT_EQ(job[0].ledger().used(), 0);
  EXPECT_EQ(job.compute().front().digest, digest);
}

// The order of calls.

TEST(ReplicaTest, ACallOutOfOrderSaysWhatToDoInstead) {
  Replica replica(uniform(4), {{}}, 0);
  const auto refusal = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const OrderError& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(refusal([&] { (void)replica.plan(); }), HasSubstr("name its dataset"));
  replica.open(8);
  EXPECT_THAT(refusal([&] { (void)replica.report({}); }), HasSubstr("take the next batch"));
  (void)replica.plan();
  EXPECT_THAT(refusal([&] { (void)replica.plan(); }), HasSubstr("the batch of step 0 is out"));
  EXPECT_THAT(refusal([&] { (void)replica.state(); }), HasSubstr("the batch of step 0 is out"));
  EXPECT_THAT(refusal([&] { (void)replica.progress(0); }), HasSubstr("give the step up (abandon)"));
  const std::vector<StepReport> reports{replica.report({})};
  EXPECT_THAT(refusal([&] { (void)replica.plan(); }), HasSubstr("finish it (complete, redo)"));
  (void)replica.complete(reports, 0, 0);
  EXPECT_THAT(refusal([&] { (void)replica.complete(reports, 0, 0); }), HasSubstr("no step is under way"));
  EXPECT_THAT(refusal([&] { replica.abandon(); }), HasSubstr("no step is under way"));
  Replica newcomer = Replica::newcomer(uniform(4), {.max_batch = 1});
  newcomer.open(8);
  EXPECT_THAT(refusal([&] { (void)newcomer.plan(); }), HasSubstr("has not joined the job yet"));
  const Settlement settlement = settle(std::vector{replica.progress(0), newcomer.progress(0)});
  EXPECT_THAT(refusal([&] { (void)newcomer.adopt(settlement, 1, 0); }), HasSubstr("take over the state of rank 0"));
}

// Memory.

TEST(ReplicaTest, ALackOfMemoryLowersTheCeilingOfThatWorkerAndDealsTheSameStepAnew) {
  TestJob job(uniform(16), {{.name = "a"}, {.name = "b"}}, 32);
  const std::vector<StepReport> reports = job.compute({{}, {.out_of_memory = true}});
  EXPECT_EQ(reports[1].failed_batch, 8);
  EXPECT_EQ(job[0].judge(reports, true).action, StepAction::kRedo);
  EXPECT_THROW((void)job[0].complete(reports, 0, 0), OrderError);
  for (std::size_t rank : {0U, 1U}) {
    EXPECT_THAT(names(job[rank].redo(reports, 1.0)), ElementsAre("out-of-memory 1 with 8 samples"));
    EXPECT_EQ(job[rank].ledger().used(), 0);
    EXPECT_EQ(job[rank].step(), 0);
    EXPECT_EQ(job[rank].position(), 0);
    EXPECT_THAT(job[rank].plan().batches(), ElementsAre(9, 7));  // the ceiling is 7/8 of 8
  }
}

TEST(ReplicaTest, ACeilingRisesAgainAfterAWhile) {
  TestJob job(uniform(16), {{}, {}}, 16 * 200);
  const std::vector<StepReport> reports = job.compute({{}, {.out_of_memory = true}});
  (void)job[0].redo(reports, 1.0);
  (void)job[1].redo(reports, 1.0);
  for (int step = 0; step < 49; ++step) {
    (void)job.step();
  }
  EXPECT_EQ(job[0].workers()[1].max_batch, 7);
  (void)job.step();  // the 50th is finished
  EXPECT_EQ(job[0].workers()[1].max_batch, 8);
}

TEST(ReplicaTest, WhoCannotTakeLessComputesInChunks) {
  TestJob job(uniform(16), {{.max_batch = 8}, {.max_batch = 8}}, 32);
  const std::vector<StepReport> reports = job.compute({{}, {.out_of_memory = true, .chunkable = true}});
  for (std::size_t rank : {0U, 1U}) {
    (void)job[rank].redo(reports, 1.0);
    EXPECT_EQ(job[rank].chunk_size(), rank == 0 ? 0 : 7);
    EXPECT_THAT(job[rank].plan().batches(), ElementsAre(8, 8));
  }
  EXPECT_EQ(job[1].report({.out_of_memory = true}).failed_batch, 7);
}

TEST(ReplicaTest, AChunkSizeThatWasFoundIsInTheCheckpointOfAnyWorker) {
  TestJob job(uniform(16), {{.max_batch = 8}, {.max_batch = 8}}, 32);
  const std::vector<StepReport> reports = job.compute({{}, {.out_of_memory = true, .chunkable = true}});
  (void)job[0].redo(reports, 1.0);
  TestJob again(uniform(16), {{.max_batch = 8}, {.max_batch = 8}}, 32);
  for (std::size_t rank : {0U, 1U}) {
    again[rank].restore(job[0].state());
    EXPECT_EQ(again[rank].chunk_size(), rank == 0 ? 0 : 7);
  }
}

TEST(ReplicaTest, WhoComputesInChunksComputesSmallerOnesAndKeepsItsShare) {
  TestJob job(uniform(16), {{.max_batch = 8}, {.max_batch = 8}}, 32);
  std::vector<StepReport> reports = job.compute({{}, {.out_of_memory = true, .chunkable = true}});
  for (std::size_t rank : {0U, 1U}) {
    (void)job[rank].redo(reports, 1.0);
    job[rank].change_bounds(
        std::vector<BatchBounds>{{.min_batch = 1, .max_batch = 16}, {.min_batch = 1, .max_batch = 8}});
  }
  reports = job.compute({{}, {.out_of_memory = true, .chunkable = true}});
  EXPECT_EQ(reports[1].failed_batch, 7);
  for (std::size_t rank : {0U, 1U}) {
    (void)job[rank].redo(reports, 2.0);
    EXPECT_EQ(job[rank].chunk_size(), rank == 0 ? 0 : 6);
    EXPECT_THAT(job[rank].plan().batches(), ElementsAre(8, 8));  // though the first could take 10
  }
}

TEST(ReplicaTest, WithoutChunksItIsTriedOnceMoreAndThenTheJobEnds) {
  TestJob job(uniform(16), {{.max_batch = 8}, {.max_batch = 8}}, 32);
  std::vector<StepReport> reports = job.compute({{}, {.out_of_memory = true}});
  (void)job[0].redo(reports, 1.0);
  (void)job[1].redo(reports, 1.0);
  reports = job.compute({{}, {.out_of_memory = true}});
  for (std::size_t rank : {0U, 1U}) {
    EXPECT_THAT(
        failure([&] { (void)job[rank].redo(reports, 1.0); }),
        HasSubstr("step 0: the workers that are left cannot take the global batch"));
  }
}

TEST(ReplicaTest, MemoryThatRunsOutBeforeTheReportsIsToldByProgress) {
  TestJob job(uniform(16), {{}, {}}, 32);
  (void)job[0].plan();
  (void)job[1].plan();
  job[0].abandon();
  EXPECT_TRUE(job[1].abandon_for_memory(false));
  EXPECT_EQ(job[1].progress(0).failed_batch, 8);
  EXPECT_THAT(names(job.come_together({0, 1})), ElementsAre("out-of-memory 1 with 8 samples"));
  EXPECT_THAT(job[0].plan().batches(), ElementsAre(9, 7));
  EXPECT_EQ(job[1].progress(0).failed_batch, 0);
  EXPECT_EQ(job[1].plan().digest, job[0].plan_under_way().digest);  // the same samples
}

TEST(ReplicaTest, MemoryThatRunsOutWhileGradientsAreAveragedIsToldByProgress) {
  TestJob job(uniform(16), {{}, {}}, 32);
  (void)job.compute();
  job[0].abandon();
  EXPECT_TRUE(job[1].abandon_for_memory(false));
  EXPECT_EQ(job[1].progress(0).progress, 0);  // the optimizer has not taken the step
  EXPECT_THAT(names(job.come_together({0, 1})), ElementsAre("out-of-memory 1 with 8 samples"));
  EXPECT_THAT(job[0].plan().batches(), ElementsAre(9, 7));
}

TEST(ReplicaTest, OneSampleCannotBeMadeSmaller) {
  TestJob job(uniform(1), {{}}, 2);
  (void)job[0].plan();
  EXPECT_FALSE(job[0].abandon_for_memory(true));
  EXPECT_EQ(job[0].phase(), Replica::Phase::kComputing);
}

// Numbers that are not finite.

TEST(ReplicaTest, AGradientThatIsNotFiniteIsDiagnosedAndItsStepLeftOut) {
  JobSettings options = uniform(4);
  options.on_nonfinite = OnNonFinite::kSkip;
  TestJob job(options, {{.name = "a"}, {.name = "b"}}, 8);
  std::vector<StepReport> reports = job.compute();
  EXPECT_EQ(job[0].judge(reports, true).action, StepAction::kTake);
  EXPECT_EQ(job[0].judge(reports, false).action, StepAction::kRedo);  // nobody knows whose it is
  (void)job[0].redo(reports, 1.0);
  (void)job[1].redo(reports, 1.0);
  EXPECT_TRUE(job[0].plan().diagnose);
  job[0].abandon();
  reports = job.compute({{}, {.loss = 2.0, .finite = false}});
  const StepVerdict verdict = job[0].judge(reports, false);
  EXPECT_EQ(verdict.action, StepAction::kLeaveOut);
  EXPECT_EQ(verdict.message, "step 0: the gradient is not finite on b (rank 1, loss 2.000000)");
  const StepOutcome outcome = job[0].leave_out(reports, 1.0, 2.0);
  EXPECT_THAT(names(outcome.events), ElementsAre("numbers 1 " + verdict.message));
  EXPECT_EQ(job[0].step(), 1);
  EXPECT_EQ(job[0].ledger().used(), 4);
  EXPECT_FALSE(job[0].plan().diagnose);
}

TEST(ReplicaTest, AGradientThatIsNotFiniteStopsRollsBackOrIsIgnoredAsAsked) {
  const auto verdict = [](OnNonFinite on_non_finite) {
    JobSettings options = uniform(4);
    options.on_nonfinite = on_non_finite;
    TestJob job(options, {{}, {}}, 8);
    return job[0].judge(job.compute({{.loss = kNan}, {}}), false).action;
  };
  EXPECT_EQ(verdict(OnNonFinite::kStop), StepAction::kStop);
  EXPECT_EQ(verdict(OnNonFinite::kSkip), StepAction::kLeaveOut);
  EXPECT_EQ(verdict(OnNonFinite::kRollBack), StepAction::kRollBack);
  EXPECT_EQ(verdict(OnNonFinite::kIgnore), StepAction::kTake);
}

TEST(ReplicaTest, AStepIsRolledBackForOnlyOnceAlsoByAWorkerThatJoinsMeanwhile) {
  JobSettings options = uniform(4);
  options.on_nonfinite = OnNonFinite::kRollBack;
  TestJob job(options, {{}, {}}, 40);
  (void)job.step();
  const State saved = job[0].state();
  (void)job.step();
  (void)job.compute({{.loss = kNan}, {}});
  for (std::size_t rank : {0U, 1U}) {
    EXPECT_THAT(names(job[rank].roll_back(saved, "why", 5.0)), ElementsAre("rollback 0 why"));
    EXPECT_EQ(job[rank].step(), 1);
    EXPECT_EQ(job[rank].ledger().used(), 4);
  }
  Replica third = Replica::newcomer(options, {});
  third.open(40);
  job.add(std::move(third));
  (void)job.come_together({0, 1, 2});
  (void)job.step();
  const std::vector<StepReport> reports = job.compute({{.loss = kNan}, {}, {}});
  EXPECT_EQ(job[0].judge(reports, false).action, StepAction::kLeaveOut);
  EXPECT_EQ(job[2].judge(reports, false).action, StepAction::kLeaveOut);
}

}  // namespace
}  // namespace isochron
