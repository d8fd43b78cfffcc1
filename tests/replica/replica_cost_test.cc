// Jobs whose samples cost differently: shares are amounts of work, dealt by cost in every step.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/failure.h"
#include "tests/replica/job.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/deal/deal.h"
#include "isochron/core/random/random.h"
#include "isochron/core/replica/replica.h"

namespace isochron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SampleWorks lengths(std::size_t samples, Collation collation = Collation::kPacked, std::uint64_t seed = 1) {
  Random random({seed});
  SampleWorks works{.works = std::vector<float>(samples), .collation = collation};
  for (float& work : works.works) {
    work = static_cast<float>(std::clamp(std::round(std::exp(5.0 + 0.8 * random.normal())), 8.0, 2048.0));
  }
  return works;
}

/// A job on workers that take per_step + per_sample b + per_work W seconds, each times its slowness and some noise.
class CostJob {
 public:
  struct Machine {
    double slowness = 1.0;
    double per_step = 0.0;
    double per_sample = 0.0;
    double per_work = 1e-4;
  };

  CostJob(const JobSettings& options, std::vector<Machine> machines, const SampleWorks& works, bool by_cost = true)
      : machines_(std::move(machines)),
        works_(works),
        job_(options, std::vector<Worker>(machines_.size()), by_cost ? 0 : std::ssize(works.works)) {
    for (std::size_t rank = 0; by_cost && rank < job_.size(); ++rank) {
      job_[rank].open(works);
    }
  }

  TestJob& operator*() { return job_; }

  void slow_down(std::size_t rank, double factor) { machines_[rank].slowness *= factor; }

  [[nodiscard]] double seconds(std::size_t k, double samples, double work) const {
    const Machine& machine = machines_[k];
    return machine.slowness * (machine.per_step + machine.per_sample * samples + machine.per_work * work);
  }

  /// Works of the samples that a plan gives a worker.
  [[nodiscard]] std::vector<double> works_of(const StepPlan& plan, std::size_t rank) {
    std::vector<double> works;
    for (const std::int64_t position : plan.positions(plan.slices[rank])) {
      works.push_back(
          static_cast<double>(works_.works[static_cast<std::size_t>(job_[0].sampler().sample_at(position))]));
    }
    return works;
  }

  /// What the longest share of a step takes, without noise.
  double step(double noise) {
    std::vector<StepReport> reports;
    double longest = 0.0;
    for (std::size_t rank = 0; rank < job_.size(); ++rank) {
      const StepPlan& plan = job_[rank].plan();
      const std::vector<double> works = works_of(plan, rank);
      const auto samples = static_cast<double>(works.size());
      double work = std::accumulate(works.begin(), works.end(), 0.0);
      if (works_.collation == Collation::kPadded && !works.empty()) {
        work = samples * *std::ranges::max_element(works);
      }
      const double taken = works.empty() ? 0.0 : seconds(rank, samples, work);
      longest = std::max(longest, taken);
      reports.push_back(job_[rank].report({.seconds = taken * std::exp(noise * random_.normal())}));
    }
    job_.complete(reports);
    return longest;
  }

  /// The same if all speeds were known.
  double oracle_step() {
    const Replica& replica = job_[0];
    std::vector<double> works;
    for (std::int64_t i = 0; i < replica.sampler().step_size(); ++i) {
      const std::int64_t sample = replica.sampler().sample_at(replica.position() + i);
      works.push_back(static_cast<double>(works_.works[static_cast<std::size_t>(sample)]));
    }
    std::vector<DealSlot> slots;
    for (const Machine& machine : machines_) {
      slots.push_back(
          {.curve = Curve::affine(machine.slowness * machine.per_step, machine.slowness * machine.per_work),
           .work_per_sample = machine.per_sample / machine.per_work,
           .min_samples = 1});
    }
    return deal_by_cost(works, slots, works_.collation).seconds;
  }

  /// Mean over steps of how far from the oracle, after some to learn in.
  double of_oracle(int learning, int steps, double noise) {
    double taken = 0.0;
    double best = 0.0;
    for (int n = 0; n < learning + steps; ++n) {
      const double oracle = oracle_step();
      const double real = step(noise);
      if (n >= learning) {
        best += oracle;
        taken += real;
      }
    }
    return best / taken;
  }

 private:
  std::vector<Machine> machines_;
  SampleWorks works_;
  TestJob job_;
  Random random_{9};
};

std::vector<CostJob::Machine> unequal() {
  return {{.slowness = 1.0}, {.slowness = 2.0}, {.slowness = 4.0}, {.slowness = 8.0}};
}

TEST(ReplicaCostTest, EveryPositionOfAStepIsOneWorkersAndEveryEpochUsesEachSampleOnce) {
  for (const Collation collation : {Collation::kPacked, Collation::kPadded}) {
    CostJob job({.global_batch = 32}, unequal(), lengths(500, collation));
    for (int n = 0; n < 40; ++n) {  // an epoch has 15 steps of 32 and one of 20
      const StepPlan plan = (*job)[0].plan();
      std::vector<std::int64_t> positions;
      for (const Interval& slice : plan.slices) {
        const std::vector<std::int64_t> share = plan.positions(slice);
        EXPECT_TRUE(std::ranges::is_sorted(share));
        EXPECT_GE(share.size(), 1U);
        positions.insert(positions.end(), share.begin(), share.end());
      }
      std::ranges::sort(positions);
      std::vector<std::int64_t> expected(static_cast<std::size_t>(plan.step_size));
      std::iota(expected.begin(), expected.end(), plan.position);
      ASSERT_EQ(positions, expected);
      (*job)[0].abandon();
      job.step(0.05);
      if ((*job)[0].position() == 0) {
        EXPECT_TRUE((*job)[0].ledger().complete());
      }
    }
    EXPECT_EQ((*job)[0].epoch(), 2);
  }
}

TEST(ReplicaCostTest, TheJobComesNearAnOracleThatKnowsAllSpeeds) {
  for (const Collation collation : {Collation::kPacked, Collation::kPadded}) {
    CostJob job({.global_batch = 64}, unequal(), lengths(100'000, collation));
    EXPECT_GT(job.of_oracle(60, 60, 0.03), 0.97) << name_of(kCollationNames, collation);
  }
}

TEST(ReplicaCostTest, CostsPerStepAndPerSampleAreLearned) {
  // A sample by itself costs as much as the mean sample's work (about 205), a step as much as eight.
  std::vector<CostJob::Machine> machines = unequal();
  for (CostJob::Machine& machine : machines) {
    machine.per_sample = 205.0 * machine.per_work;
    machine.per_step = 8.0 * machine.per_sample;
  }
  CostJob job({.global_batch = 64}, machines, lengths(100'000));
  EXPECT_GT(job.of_oracle(200, 100, 0.03), 0.95);
  EXPECT_NEAR((*job)[0].work_per_sample(), 1.0, 0.4);
}

TEST(ReplicaCostTest, SpeedsThatChangeAreNotTakenForCostsOfSamples) {
  // Every fourth of 16 workers goes on at a third of its speed. Readings of both speeds with both shares look like a
  // cost of a sample by itself, which there is not.
  std::vector<CostJob::Machine> machines(16);
  for (std::size_t k = 0; k < machines.size(); ++k) {
    machines[k] = {.slowness = 1.0 + static_cast<double>(k % 4), .per_step = 0.5 * 205.0 * 1e-4};
  }
  CostJob job({.global_batch = 256}, machines, lengths(100'000));
  for (int n = 0; n < 50; ++n) {
    job.step(0.05);
  }
  for (std::size_t k = 0; k < machines.size(); k += 4) {
    job.slow_down(k, 3.0);
  }
  for (int n = 0; n < 30; ++n) {
    job.step(0.05);
  }
  EXPECT_LT((*job)[0].work_per_sample(), 0.05);
}

/// Lengths, where a job has to learn what their squares cost, and what they cost in truth: as much as the lengths.
struct AttentionJob {
  explicit AttentionJob(Collation collation, std::uint64_t noise_seed = 9) : random({noise_seed}) {
    works = lengths(100'000, collation);
    works.learns_squares = true;
    double sum = 0.0;
    double squares = 0.0;
    for (const float work : works.works) {
      sum += static_cast<double>(work);
      squares += static_cast<double>(work) * static_cast<double>(work);
    }
    per_square = sum / squares;
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      job[rank].open(works);
    }
  }

  /// The longest time of a share over the shortest.
  double step(double noise) {
    std::vector<StepReport> reports;
    std::vector<double> times;
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      const StepPlan& plan = job[rank].plan();
      double cost = 0.0;
      double largest = 0.0;
      for (const std::int64_t position : plan.positions(plan.mine)) {
        const auto sample = static_cast<std::size_t>(job[0].sampler().sample_at(position));
        const auto length = static_cast<double>(works.works[sample]);
        const double one = length + per_square * length * length;
        cost += one;
        largest = std::max(largest, one);
      }
      cost = works.collation == Collation::kPacked ? cost : static_cast<double>(plan.mine.size()) * largest;
      times.push_back(std::exp2(static_cast<double>(rank)) * 1e-4 * cost);
      reports.push_back(job[rank].report({.seconds = times.back() * std::exp(noise * random.normal())}));
    }
    job.complete(reports);
    return std::ranges::max(times) / std::ranges::min(times);
  }

  SampleWorks works;
  double per_square = 0.0;
  TestJob job{{.global_batch = 64}, std::vector<Worker>(4), 0};
  Random random;
};

TEST(ReplicaCostTest, WhatSquaresOfLengthsCostIsLearned) {
  for (const Collation collation : {Collation::kPacked, Collation::kPadded}) {
    AttentionJob attention(collation);
    EXPECT_EQ(attention.job[0].work_per_square(), 0.0);
    double spread = 0.0;
    for (int n = 0; n < 150; ++n) {
      const double now = attention.step(0.05);
      spread += n < 100 ? 0.0 : now / 50.0;
    }
    EXPECT_NEAR(attention.job[0].work_per_square(), 1.0, 0.3) << name_of(kCollationNames, collation);
    EXPECT_LT(spread, collation == Collation::kPacked ? 1.15 : 1.5);
    for (std::size_t rank = 1; rank < 4; ++rank) {  // not a bit differs
      EXPECT_EQ(attention.job[rank].work_per_square(), attention.job[0].work_per_square());
      EXPECT_EQ(attention.job[rank].state().serialize(), attention.job[0].state().serialize());
    }
  }
}

TEST(ReplicaCostTest, SquaresThatCostNothingAreFoundToCostNothing) {
  AttentionJob linear(Collation::kPacked);
  linear.per_square = 0.0;
  for (int n = 0; n < 100; ++n) {
    linear.step(0.05);
  }
  EXPECT_LT(linear.job[0].work_per_square(), 0.05);
}

TEST(ReplicaCostTest, WhatSquaresCostSurvivesSavingAndIsKnownToNewcomers) {
  AttentionJob attention(Collation::kPacked);
  for (int n = 0; n < 40; ++n) {
    attention.step(0.05);
  }
  const double learned = attention.job[0].work_per_square();
  EXPECT_GT(learned, 0.5);
  const State saved = State::parse(attention.job[0].state().serialize());
  Replica before({.global_batch = 64}, std::vector<Worker>(4), 2);
  before.restore(saved);
  before.open(attention.works);
  Replica after({.global_batch = 64}, std::vector<Worker>(4), 2);
  after.open(attention.works);
  after.restore(saved);
  EXPECT_EQ(before.work_per_square(), learned);
  EXPECT_EQ(after.work_per_square(), learned);
  EXPECT_EQ(after.work_per_sample(), attention.job[2].work_per_sample());
  EXPECT_EQ(before.plan().digest, attention.job[2].plan().digest);
  EXPECT_EQ(after.plan().digest, before.plan_under_way().digest);
}

TEST(ReplicaCostTest, EveryPolicySeesWork) {
  // By count, the share of the right number takes a time that lengths decide; by cost only speeds do.
  for (const char* const policy : {"isochron", "omnilearn", "lb-bsp", "lbb", "dlb:interval=10"}) {
    const SampleWorks works = lengths(100'000);
    CostJob by_cost({.global_batch = 64, .policy = policy}, unequal(), works);
    CostJob by_count({.global_batch = 64, .policy = policy}, unequal(), works, /*by_cost=*/false);
    const double cost = by_cost.of_oracle(80, 60, 0.03);
    const double count = by_count.of_oracle(80, 60, 0.03);
    EXPECT_GT(cost, 1.15 * count) << policy << ": " << cost << " and " << count;
    EXPECT_GT(cost, 0.85) << policy;
  }
}

TEST(ReplicaCostTest, ForeseesThePlanOfAStepIfNothingIsLearned) {
  CostJob job({.global_batch = 32}, unequal(), lengths(100));  // an epoch has 3 steps of 32 and one of 4
  job.step(0.0);
  const std::vector<std::int64_t> coming = (*job)[1].foresee(0, 32);
  const std::vector<std::int64_t> last = (*job)[1].foresee(0, 96);
  const StepPlan& plan = (*job)[1].plan();
  EXPECT_EQ(coming, plan.positions(plan.mine));
  EXPECT_TRUE(std::ranges::all_of(last, [](std::int64_t position) { return position >= 96 && position < 100; }));
  TestJob counted({.global_batch = 8}, {{}, {}}, 20);
  EXPECT_THROW((void)counted[0].foresee(0, 8), OrderError);
}

TEST(ReplicaCostTest, EqualWorkersGetEqualWork) {
  CostJob job({.global_batch = 48, .policy = "uniform"}, {{}, {}, {}}, lengths(10'000));
  for (int n = 0; n < 20; ++n) {
    const StepPlan plan = (*job)[0].plan();
    std::vector<double> works;
    for (const WorkShares::Share& share : plan.shares) {
      works.push_back(share.work);
    }
    EXPECT_LT(std::ranges::max(works) / std::ranges::min(works), 1.02);
    (*job)[0].abandon();
    job.step(0.0);
  }
}

TEST(ReplicaCostTest, ARestoredJobGoesOnAsIfItHadNotStopped) {
  const SampleWorks works = lengths(1000);
  CostJob job({.global_batch = 32}, unequal(), works);
  for (int n = 0; n < 40; ++n) {
    job.step(0.05);
  }
  const State saved = State::parse((*job)[0].state().serialize());
  Replica before({.global_batch = 32}, std::vector<Worker>(4), 2);
  before.restore(saved);
  before.open(works);
  Replica after({.global_batch = 32}, std::vector<Worker>(4), 2);
  after.open(works);
  after.restore(saved);
  EXPECT_EQ(before.plan().digest, (*job)[2].plan().digest);
  EXPECT_EQ(after.plan().digest, before.plan_under_way().digest);
  EXPECT_EQ(after.plan_under_way().positions(after.plan_under_way().mine).size(), after.plan_under_way().mine.size());
  EXPECT_EQ((*job)[0].work_per_sample(), after.work_per_sample());
}

std::string refusal_of_lengths(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(ReplicaCostTest, AJobDealsByCostFromItsBeginningOrNotAtAll) {
  const SampleWorks works = lengths(100);
  CostJob job({.global_batch = 32}, unequal(), works);
  job.step(0.0);
  const State by_cost = (*job)[0].state();
  TestJob counted({.global_batch = 32}, std::vector<Worker>(4), 100);
  counted.step();
  EXPECT_THAT(refusal_of_lengths([&] { counted[0].open(works); }), HasSubstr("begun to deal by count"));
  EXPECT_THAT(refusal_of_lengths([&] { counted[0].restore(by_cost); }), HasSubstr("without the lengths"));
  EXPECT_THAT(refusal_of_lengths([&] { (*job)[0].restore(counted[0].state()); }), HasSubstr("has lengths"));
  EXPECT_THAT(refusal_of_lengths([&] { (*job)[0].change_data(50, std::nullopt); }), HasSubstr("a second dataset"));
  Replica restored({.global_batch = 32}, std::vector<Worker>(4), 0);
  restored.restore(by_cost);
  EXPECT_THAT(refusal_of_lengths([&] { restored.open(100); }), HasSubstr("without the lengths"));
  EXPECT_THAT(refusal_of_lengths([&] { restored.open_stream(); }), HasSubstr("a stream"));
}

TEST(ReplicaCostTest, AStreamIsDealtByWorksAsTheyArrive) {
  const SampleWorks works = lengths(32);
  TestJob job({.global_batch = 32}, {{}, {}});
  for (std::size_t rank : {0U, 1U}) {
    job[rank].open(ArrivingWorks{});
    EXPECT_THROW((void)job[rank].plan(32), OrderError);
    EXPECT_THAT(refusal_of_lengths([&] { (void)job[rank].plan_arrived({}); }), HasSubstr("permitted: 1 to 32"));
  }
  std::vector<double> amounts(2);
  for (int step = 0; step < 30; ++step) {
    std::vector<StepReport> reports;
    std::set<std::int64_t> taken;
    for (std::size_t rank : {0U, 1U}) {
      const StepPlan& plan = job[rank].plan_arrived(works.works);
      const std::vector<std::int64_t> mine = plan.positions(plan.mine);
      taken.insert(mine.begin(), mine.end());
      amounts[rank] = plan.shares[rank].work;
      reports.push_back(job[rank].report({.seconds = amounts[rank] * (rank == 0 ? 1e-4 : 3e-4)}));
    }
    ASSERT_EQ(taken.size(), 32U);
    EXPECT_EQ(*taken.begin(), 32 * step);
    EXPECT_EQ(job.complete(reports).record.workers[1].work, amounts[1]);
  }
  EXPECT_NEAR(amounts[0] / amounts[1], 3.0, 0.1);  // speeds 3 to 1

  // A job that goes on has the mean of before, not that of its own first step.
  Replica restored({.global_batch = 32}, {{}, {}}, 0);
  restored.restore(job[0].state());
  restored.open(ArrivingWorks{});
  const std::vector<float> twice(32, 2.0F * works.works[0]);
  EXPECT_EQ(restored.plan_arrived(twice).digest, job[0].plan_arrived(twice).digest);
  CostJob known({.global_batch = 32}, unequal(), lengths(100));
  EXPECT_THROW((void)(*known)[0].plan_arrived(twice), OrderError);
}

TEST(ReplicaCostTest, BadWorksAndGranularitiesAreRefused) {
  SampleWorks bad = lengths(10);
  bad.works[3] = std::numeric_limits<float>::quiet_NaN();
  Replica replica({.global_batch = 4}, {{}, {}}, 0);
  EXPECT_THAT(refusal_of_lengths([&] { replica.open(bad); }), HasSubstr("work of sample 3"));
  Replica coarse({.global_batch = 16}, {{.granularity = 8}, {.granularity = 8}}, 0);
  EXPECT_THAT(refusal_of_lengths([&] { coarse.open(lengths(100)); }), HasSubstr("granularity of"));
}

TEST(ReplicaCostTest, WhoHasOtherLengthsIsNamed) {
  TestJob job({.global_batch = 8}, {{}, {}});
  job[0].open(lengths(100, Collation::kPacked, 1));
  job[1].open(lengths(100, Collation::kPacked, 2));
  const std::vector<StepReport> reports = job.compute();
  EXPECT_THAT(failure([&] { (void)job[0].complete(reports, 1.0, 1.0); }), HasSubstr("rank 1 does not agree"));
}

TEST(ReplicaCostTest, AStepWithFewerSamplesThanWorkersLeavesSomeOut) {
  CostJob job({.global_batch = 8}, unequal(), lengths(10));
  job.step(0.0);
  const StepPlan plan = (*job)[0].plan();
  EXPECT_EQ(plan.step_size, 2);
  EXPECT_EQ(std::ranges::count(plan.batches(), 0), 2);
  (*job)[0].abandon();
  job.step(0.0);
  EXPECT_TRUE((*job)[0].ledger().complete());
}

TEST(ReplicaCostTest, AWorkerWhoseMemoryRunsOutGetsLessWork) {
  TestJob job({.global_batch = 32, .policy = "uniform"}, {{}, {}});
  const SampleWorks works = lengths(320);
  job[0].open(works);
  job[1].open(works);
  std::vector<StepReport> reports = job.compute({{.seconds = 1.0}, {.out_of_memory = true}});
  const double too_much = job[0].plan_under_way().shares[1].work;
  EXPECT_EQ(job[0].judge(reports, true).action, StepAction::kRedo);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(
        names(job[rank].redo(reports, 1.0)), ElementsAre(HasSubstr("out-of-memory 1 with the work of about 1")));
  }
  const StepPlan plan = job[0].plan();
  EXPECT_LE(plan.shares[1].work, 0.88 * too_much);
  EXPECT_EQ(plan.shares[0].samples + plan.shares[1].samples, 32);
  EXPECT_EQ(plan.digest, job[1].plan().digest);
}

TEST(ReplicaCostTest, BoundsOnSamplesAreKept) {
  TestJob job({.global_batch = 32}, {{.min_batch = 12, .max_batch = 14}, {}, {.max_batch = 9}});
  for (std::size_t rank = 0; rank < 3; ++rank) {
    job[rank].open(lengths(3200));
  }
  for (int n = 0; n < 30; ++n) {
    const std::vector<StepReport> reports = job.compute({{.seconds = 1.0}, {.seconds = 9.0}, {.seconds = 1.0}});
    const std::vector<std::int64_t> batches = job[0].plan_under_way().batches();
    EXPECT_GE(batches[0], 12);
    EXPECT_LE(batches[0], 14);
    EXPECT_LE(batches[2], 9);
    job.complete(reports);
  }
}

TEST(ReplicaCostTest, WorkersComeAndGo) {
  const SampleWorks works = lengths(320);
  CostJob cost_job({.global_batch = 32}, unequal(), works);
  TestJob& job = *cost_job;
  for (int n = 0; n < 8; ++n) {
    cost_job.step(0.02);
  }
  job.come_together({0, 1, 3});
  EXPECT_EQ(job[0].plan().digest, job[2].plan().digest);
  EXPECT_EQ(job[0].plan_under_way().slices.size(), 3U);
  job[0].abandon();
  job[2].abandon();
  Replica newcomer = Replica::newcomer({.global_batch = 32}, {});
  newcomer.open(works);
  job.add(std::move(newcomer));
  job.come_together({0, 1, 2, 3});
  Replica late = Replica::newcomer({.global_batch = 32}, {});  // names its data only when it is in the job
  job.add(std::move(late));
  job.come_together({0, 1, 2, 3, 4});
  job[4].open(works);
  while (job[0].epoch() == 0) {
    job.step(std::vector<StepReport>(5, {.seconds = 1.0}));
  }
  EXPECT_TRUE(job[0].ledger().complete());
  EXPECT_EQ(job[0].state().serialize(), job[4].state().serialize());
}

}  // namespace
}  // namespace isochron
