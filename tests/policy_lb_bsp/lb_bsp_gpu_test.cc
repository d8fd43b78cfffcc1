#include "isochron/baselines/lb_bsp_gpu.h"

#include <algorithm>

#include "tests/policy_lb_bsp/bench.h"
#include <gtest/gtest.h>

#include "isochron/core/allocate/allocate.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

using Split = std::vector<std::int64_t>;

/// Four GPUs, flat at first: 10 ms up to 32 or 16 samples, then proportional.
Bench gpus(std::int64_t global_batch) {
  const Curve fast = Curve::saturating(0.010, 0.0, 0.010 / 32);
  const Curve slow = Curve::saturating(0.010, 0.0, 0.010 / 16);
  return {global_batch, {slow, slow, fast, fast}};
}

/// Plays the policy against the bench.
class Game {
 public:
  Game(const Bench& bench, LbBspGpu& policy) : bench_(bench), policy_(policy) {
    split_ = split_of(bench.roster, policy.start(bench.roster, {}));
  }

  Proposal step(const Bench& bench) {
    Proposal proposal = policy_.observe(bench.roster, bench.readings(split_), split_);
    split_ = split_of(bench.roster, proposal);
    return proposal;
  }
  /// Plays on until a window ends.
  Proposal window() {
    Proposal proposal = step(bench_);
    while (proposal.reason == Reason::kObserving) {
      proposal = step(bench_);
    }
    return proposal;
  }
  void play(const Bench& bench, int steps) {
    for (int i = 0; i < steps; ++i) {
      (void)step(bench);
    }
  }
  [[nodiscard]] const Split& split() const { return split_; }
  [[nodiscard]] double parameter(const std::string& name) const { return save_state(policy_).numbers.at(name).front(); }

 private:
  const Bench& bench_;
  LbBspGpu& policy_;
  Split split_;
};

double optimum(const Bench& bench) {
  std::vector<Slot> slots;
  for (std::size_t k = 0; k < bench.curves.size(); ++k) {
    const Worker& worker = bench.roster.workers[k];
    slots.push_back(
        {.curve = bench.curves[k],
         .min_batch = worker.min_batch,
         .max_batch = worker.max_batch,
         .granularity = worker.granularity});
  }
  return allocate(slots, bench.roster.global_batch).seconds;
}

TEST(LbBspGpuTest, MovesAStepFromTheStragglerToTheLeaderAfterAWindow) {
  const Bench bench = gpus(256);
  LbBspGpu policy({.window = 3});
  Game game(bench, policy);
  EXPECT_EQ(game.step(bench).reason, Reason::kObserving);
  EXPECT_EQ(game.step(bench).words, "step 2 of 3 of the observation window");
  const Proposal proposal = game.step(bench);
  // A quarter of 256 / 4; of equals, the first.
  EXPECT_EQ(proposal.reason, Reason::kRebalanced);
  EXPECT_EQ(proposal.words, "moved 16 samples from worker 1 to worker 3");
  EXPECT_EQ(game.split(), (Split{48, 64, 80, 64}));
}

TEST(LbBspGpuTest, HalvesTheStepAndLengthensTheWindowOnOscillation) {
  // Speeds 1 and 2 with B = 64: the balance is at 21.3 : 42.7.
  const Bench bench(64, {Curve::linear(1.0), Curve::linear(0.5)});
  LbBspGpu policy({.window = 4, .step = 0.5});
  Game game(bench, policy);
  (void)game.window();
  EXPECT_EQ(game.split(), (Split{16, 48}));  // 32 x 1 against 32 / 2: half of 32 moves, and overshoots
  EXPECT_EQ(game.parameter("step"), 16);
  EXPECT_EQ(game.parameter("window"), 4);
  (void)game.window();
  EXPECT_EQ(game.split(), (Split{24, 40}));  // 16 against 24: back by half the step
  EXPECT_EQ(game.parameter("step"), 8);
  EXPECT_EQ(game.parameter("window"), 8);
  (void)game.window();
  EXPECT_EQ(game.split(), (Split{20, 44}));  // 24 against 20
  EXPECT_EQ(game.parameter("step"), 4);
  EXPECT_EQ(game.parameter("window"), 12);
  (void)game.window();
  EXPECT_EQ(game.split(), (Split{22, 42}));  // 20 against 22
  (void)game.window();
  EXPECT_EQ(game.split(), (Split{21, 43}));  // 22 against 21
  EXPECT_EQ(game.parameter("step"), 1);
  EXPECT_EQ(game.parameter("window"), 20);
  // 21 against 21.5, which oscillates with the smallest step, and is better than 22 was: it stops here.
  EXPECT_EQ(game.window().words, "settled: the smallest move goes to and fro");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(game.window().reason, Reason::kKept);
  }
  EXPECT_EQ(game.split(), (Split{21, 43}));
}

TEST(LbBspGpuTest, TakesTheLastMoveBackIfItWasTheWorse) {
  // Speeds 1 and 1.4 with 7 samples: 3 : 4 takes 3, 2 : 5 takes 3.57.
  const Bench bench(7, {Curve::linear(1.0), Curve::linear(1.0 / 1.4)});
  LbBspGpu policy({.window = 1});
  Game game(bench, policy);
  EXPECT_EQ(game.split(), (Split{4, 3}));
  EXPECT_EQ(game.window().words, "moved 1 sample from worker 1 to worker 2");
  EXPECT_EQ(game.window().words, "moved 1 sample from worker 1 to worker 2");
  EXPECT_EQ(game.split(), (Split{2, 5}));
  EXPECT_EQ(game.window().words, "settled: took back 1 sample from worker 1 to worker 2");
  EXPECT_EQ(game.split(), (Split{3, 4}));
}

TEST(LbBspGpuTest, EndsBalancedWithinAUnitOnSaturatingCurves) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random({seed});
    std::vector<Curve> curves;
    double slowest_sample = 0.0;
    for (std::uint64_t k = random.below(7) + 2; k > 0; --k) {
      const double sample = 1.0 / (1.0 + 9.0 * random.uniform());
      slowest_sample = std::max(slowest_sample, sample);
      curves.push_back(Curve::saturating(sample * static_cast<double>(random.below(20)), 0.0, sample));
    }
    const auto workers = static_cast<std::int64_t>(curves.size());
    const Bench bench(workers * static_cast<std::int64_t>(8 + random.below(200)), curves);
    LbBspGpu policy({});
    Game game(bench, policy);
    game.play(bench, 1000);
    ASSERT_LE(bench.slowest(game.split()), optimum(bench) + slowest_sample) << seed;
  }
}

TEST(LbBspGpuTest, MovesWholeUnitsAndKeepsBounds) {
  Bench bench(512, {Curve::linear(1.0), Curve::linear(1.0 / 2), Curve::linear(1.0 / 9)});
  for (Worker& worker : bench.roster.workers) {
    worker.granularity = 8;
  }
  bench.roster.workers[0].min_batch = 80;
  bench.roster.workers[2].max_batch = 304;
  LbBspGpu policy({});
  Game game(bench, policy);
  for (int step = 0; step < 1000; ++step) {
    (void)game.step(bench);
    for (const std::int64_t batch : game.split()) {
      ASSERT_EQ(batch % 8, 0);
    }
  }
  // Worker 3 would take 384; it stops at its ceiling. The others share 208 as 1 : 2 would, but for the least batch.
  EXPECT_EQ(game.split(), (Split{80, 128, 304}));
}

TEST(LbBspGpuTest, TurnsToTheNextWorkerWhenTheSlowestCanGiveNoMore) {
  Bench bench(512, {Curve::linear(1.0), Curve::linear(1.0 / 2), Curve::linear(1.0 / 10)});
  for (Worker& worker : bench.roster.workers) {
    worker.granularity = 8;
  }
  bench.roster.workers[0].min_batch = 80;
  LbBspGpu policy({});
  Game game(bench, policy);
  game.play(bench, 1000);
  EXPECT_EQ(game.split(), (Split{80, 72, 360}));  // the 432 that worker 1 leaves, as 2 : 10
}

TEST(LbBspGpuTest, GrowsABatchOnlyIntoTheMemoryThereIs) {
  // Workers 2 and 3 would share 80 % of 60 samples evenly, but worker 2 has memory for 25; at most 90 % may be used,
  // which is 22.
  const Bench bench(60, {Curve::linear(1.0), Curve::linear(0.5), Curve::linear(0.5)});
  LbBspGpu policy({.window = 1, .memory_limit = 0.9});
  Split split = split_of(bench.roster, policy.start(bench.roster, {}));
  for (int step = 0; step < 50; ++step) {
    auto readings = bench.readings(split);
    readings[1].usage.memory = static_cast<double>(split[1]) / 25.0;
    split = split_of(bench.roster, policy.observe(bench.roster, readings, split));
    ASSERT_LE(split[1], 22);
  }
  EXPECT_EQ(split[1], 22);
  EXPECT_EQ(bench.slowest(split), 13.0);  // 38 samples for 1 : 2, as 13 + 25 or 12 + 26
}

TEST(LbBspGpuTest, StartsAgainWhenAMachineChanges) {
  const Bench before(64, {Curve::linear(1.0), Curve::linear(0.5)});
  const Bench after(64, {Curve::linear(1.0), Curve::linear(2.0)});
  LbBspGpu policy({});
  Game game(before, policy);
  game.play(before, 500);
  EXPECT_EQ(game.split(), (Split{21, 43}));
  game.play(after, 500);
  EXPECT_NEAR(static_cast<double>(game.split()[0]), 42.7, 1.0);
}

TEST(LbBspGpuTest, SitsOutAWindowOfSilence) {
  const Bench bench = gpus(256);
  LbBspGpu policy({.window = 2});
  const Split split = split_of(bench.roster, policy.start(bench.roster, {}));
  const std::vector<Reading> silence(4);
  (void)policy.observe(bench.roster, silence, split);
  const Proposal proposal = policy.observe(bench.roster, silence, split);
  EXPECT_EQ(proposal.reason, Reason::kNoTelemetry);
  EXPECT_EQ(split_of(bench.roster, proposal), split);
}

TEST(LbBspGpuTest, GivesANewcomerTheMedianBatchOfItsKind) {
  Bench bench = gpus(300);
  bench.roster.workers[2].kind = bench.roster.workers[3].kind = "fast";
  LbBspGpu policy({});
  (void)policy.start(bench.roster, {});
  Roster changed = bench.roster;
  changed.workers[1] = {.id = 9, .kind = "fast"};
  const Proposal proposal = policy.start(changed, Split{50, 0, 100, 100});
  EXPECT_EQ(proposal.reason, Reason::kRosterChanged);
  // Weights 50, 100, 100, 100 for 300 samples: 42.9 and 85.7 thrice. 42 + 3 x 85 leaves 3 samples, which cost 86/100 or
  // 43/50, the same; ties go to the worker that comes first.
  EXPECT_EQ(split_of(changed, proposal), (Split{43, 86, 86, 85}));
}

/// Restores at every step from 0 to 99, in a run where the curves change at step 120.
void expect_identical_after_restore(const Bench& before, const Bench& after) {
  for (int cut = 0; cut < 100; ++cut) {
    LbBspGpu original({.window = 2});
    LbBspGpu copy({.window = 2});
    Split split = split_of(before.roster, original.start(before.roster, {}));
    (void)copy.start(before.roster, {});
    for (int step = 0; step < 200; ++step) {
      if (step == cut) {
        restore_state(copy, State::parse(save_state(original).serialize()));
      }
      const auto readings = (step < 120 ? before : after).readings(split);
      const Proposal proposal = original.observe(before.roster, readings, split);
      if (step >= cut) {
        const Proposal twin = copy.observe(before.roster, readings, split);
        ASSERT_EQ(twin.batches, proposal.batches) << cut << ", " << step;
        ASSERT_EQ(twin.words, proposal.words) << cut << ", " << step;
      }
      split = split_of(before.roster, proposal);
    }
  }
}

TEST(LbBspGpuTest, ContinuesIdenticallyAfterRestore) {
  const Bench bench(64, {Curve::linear(0.5), Curve::linear(1.1), Curve::linear(0.7)});
  const Bench changed(64, {Curve::linear(0.5), Curve::linear(0.7), Curve::linear(1.0)});
  expect_identical_after_restore(bench, changed);
  // Worker 1 stays at 1; of the others, 4 : 3 is as good as it gets, and 5 : 2 is taken back.
  Bench small(8, {Curve::linear(0.1), Curve::linear(1.0 / 1.4), Curve::linear(1.0)});
  small.roster.workers[0].max_batch = 1;
  expect_identical_after_restore(small, small);
}

}  // namespace
}  // namespace isochron
