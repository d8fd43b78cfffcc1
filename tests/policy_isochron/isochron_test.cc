#include "isochron/core/policy/isochron.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/policy/controller.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

using Batches = std::vector<std::int64_t>;
using Times = std::function<double(std::size_t worker, double batch)>;

Roster roster_of(std::size_t workers, std::int64_t global_batch) {
  Roster roster{.workers = {}, .global_batch = global_batch};
  for (std::size_t k = 0; k < workers; ++k) {
    roster.workers.emplace_back().id = k;
  }
  return roster;
}

const Decision& step(Controller& controller, const Times& times, std::int64_t sync_points = 1) {
  StepTelemetry telemetry{.step = controller.decision().step, .workers = {}};
  for (std::size_t k = 0; k < controller.roster().workers.size(); ++k) {
    const std::int64_t batch = controller.decision().batch_sizes[k];
    telemetry.workers.push_back(
        {.worker = controller.roster().workers[k].id,
         .batch = batch,
         .seconds = times(k, static_cast<double>(batch)),
         .sync_points = sync_points});
  }
  return controller.observe(telemetry);
}

Times linear(std::vector<double> speeds) {
  return [speeds = std::move(speeds)](std::size_t k, double batch) { return batch / speeds.at(k); };
}

TEST(IsochronPolicyTest, BalancesALinearClusterInOneAdjustment) {
  Controller controller(roster_of(4, 128), {});
  EXPECT_EQ(controller.decision().batch_sizes, (Batches{32, 32, 32, 32}));
  // 128 samples at 48 per second: 16, 16, 10.67 and 85.33; rounded, 86 / 32 = 2.69 s beats 11 / 4 = 2.75 s.
  const Decision& decision = step(controller, linear({6, 6, 4, 32}));
  EXPECT_EQ(decision.reason, Reason::kRebalanced);
  EXPECT_EQ(decision.batch_sizes, (Batches{16, 16, 10, 86}));
  for (int n = 0; n < 20; ++n) {
    EXPECT_FALSE(step(controller, linear({6, 6, 4, 32})).changed);
  }
}

TEST(IsochronPolicyTest, FollowsAChangeOfSpeedWithinTwoSteps) {
  Random random({1});
  std::vector<double> speeds{12, 12, 8, 16};
  const Times noisy = [&](std::size_t k, double batch) { return batch / speeds[k] * std::exp(0.05 * random.normal()); };
  Controller controller(roster_of(4, 1024), {});
  for (int n = 0; n < 60; ++n) {
    step(controller, noisy);
  }
  speeds[3] = 8;
  step(controller, noisy);
  const Batches& batches = step(controller, noisy).batch_sizes;
  // 1024 x 8 / 40 = 204.8 samples for the worker that lost half its speed; it had 341.
  EXPECT_NEAR(static_cast<double>(batches[3]), 204.8, 20.0);
}

TEST(IsochronPolicyTest, LearnsNotToFollowSpikes) {
  Random random({2});
  bool spike = false;
  const Times spiky = [&](std::size_t k, double batch) {
    return batch / (k == 0 ? 4.0 : 8.0) * std::exp(0.02 * random.normal()) * (spike && k == 0 ? 5.0 : 1.0);
  };
  Controller controller(roster_of(3, 512), {});
  int answered = 0;
  for (int n = 0; n < 1500; ++n) {
    spike = n % 15 == 14;
    const Decision& decision = step(controller, spiky);
    answered += spike && n > 1200 && decision.changed ? 1 : 0;
  }
  EXPECT_EQ(answered, 0) << "after dozens of spikes a lone outlier no longer moves samples";
}

TEST(IsochronPolicyTest, FindsAPlateauInThreeSteps) {
  // Two GPUs of equal speed, flat up to 128 samples, and a CPU a hundred times slower.
  const Times mixed = [](std::size_t k, double batch) { return k == 2 ? batch : std::max(batch, 128.0) / 100.0; };
  Roster roster = roster_of(3, 512);
  roster.workers[0].kind = roster.workers[1].kind = "gpu";
  Controller controller(roster, {});
  for (int n = 0; n < 3; ++n) {
    step(controller, mixed);
  }
  // 512 samples at 201 per second: the best is 2.55 s, with 2 samples on the CPU.
  const Batches& batches = controller.decision().batch_sizes;
  double longest = 0.0;
  for (std::size_t k = 0; k < 3; ++k) {
    longest = std::max(longest, mixed(k, static_cast<double>(batches[k])));
  }
  EXPECT_LT(longest, 1.02 * 2.55);
}

// Nothing is known of a newcomer but its first two steps.
TEST(IsochronPolicyTest, BalancesANewcomerWithinTwoSteps) {
  for (const double speed : {1.0, 6.0, 40.0}) {
    SCOPED_TRACE(speed);
    std::vector<double> speeds{8, 6, 2};
    Controller controller(roster_of(3, 960), {});
    for (int n = 0; n < 20; ++n) {
      step(controller, linear(speeds));
    }
    std::vector<Worker> workers = controller.roster().workers;
    workers.emplace_back().id = 7;
    const Batches first = controller.change_workers(workers).batch_sizes;
    // No more than the slowest: it has 2 of 16, and with the newcomer 2 of 18, of 960 samples.
    EXPECT_LE(first[3], 107);
    EXPECT_GE(first[3], 1);
    speeds.push_back(speed);
    step(controller, linear(speeds));
    const Batches& batches = step(controller, linear(speeds)).batch_sizes;
    const double best = 960.0 / std::accumulate(speeds.begin(), speeds.end(), 0.0);
    for (std::size_t k = 0; k < batches.size(); ++k) {
      EXPECT_LT(static_cast<double>(batches[k]) / speeds[k], 1.03 * best) << "worker " << k;
    }
  }
}

// It has the curve of the slowest and the uncertainty of the least certain, or it would be trusted more than those
// whose noise is known.
TEST(IsochronPolicyTest, NeverGivesANewcomerMoreThanItsNoisyPeers) {
  int more = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random({seed});
    const Times noisy = [&](std::size_t, double batch) { return batch * std::exp(0.2 * random.normal()); };
    Controller controller(roster_of(2, 128), {});
    for (int n = 0; n < 20; ++n) {
      step(controller, noisy);
    }
    const Batches& batches = controller.change_workers(roster_of(3, 128).workers).batch_sizes;
    more += batches[2] > std::max(batches[0], batches[1]) ? 1 : 0;
  }
  EXPECT_EQ(more, 0);
}

TEST(IsochronPolicyTest, GivesANewcomerTheShareOfTheSlowest) {
  Controller controller(roster_of(3, 300), {});
  step(controller, linear({4, 4, 2}));
  EXPECT_EQ(controller.decision().batch_sizes, (Batches{120, 120, 60}));
  std::vector<Worker> workers = controller.roster().workers;
  workers.emplace_back().id = 7;
  const Decision& decision = controller.change_workers(workers);
  EXPECT_EQ(decision.reason, Reason::kRosterChanged);
  EXPECT_EQ(decision.batch_sizes, (Batches{100, 100, 50, 50}));
  // It turns out to be the fastest: 300 / 18 seconds a step.
  const Decision& balanced = step(controller, linear({4, 4, 2, 8}));
  EXPECT_EQ(std::accumulate(balanced.batch_sizes.begin(), balanced.batch_sizes.end(), std::int64_t{0}), 300);
  EXPECT_NEAR(static_cast<double>(balanced.batch_sizes[3]), 300.0 * 8 / 18, 2.0);
}

TEST(IsochronPolicyTest, KeepsWhatItKnowsWhenAWorkerLeaves) {
  Controller controller(roster_of(3, 300), {});
  step(controller, linear({4, 4, 2}));
  std::vector<Worker> workers = controller.roster().workers;
  workers.erase(workers.begin());
  EXPECT_EQ(controller.change_workers(workers).batch_sizes, (Batches{200, 100}));
}

TEST(IsochronPolicyTest, WaitsForReadings) {
  Controller controller(roster_of(2, 10), {});
  const Decision& decision = controller.observe({.step = 0, .workers = {}});
  EXPECT_EQ(decision.reason, Reason::kNoTelemetry);
  EXPECT_EQ(decision.batch_sizes, (Batches{5, 5}));
}

TEST(IsochronPolicyTest, CountsCommunicationThatCannotOverlap) {
  // Equal speeds, but worker 1 spends 20 s a step on its link: 70 + 0 = 50 + 20 with 120 samples at 1 per second.
  Roster roster = roster_of(2, 120);
  roster.workers[1].offset_seconds = 20.0;
  Controller controller(roster, {});
  EXPECT_EQ(step(controller, linear({1, 1})).batch_sizes, (Batches{70, 50}));
}

TEST(IsochronPolicyTest, StartsFromNominalSpeedsWhenAsked) {
  Roster roster = roster_of(2, 12);
  roster.workers[0].weight = 1.0;
  roster.workers[1].weight = 3.0;
  EXPECT_EQ(Controller(roster, {.policy = "isochron:start=weights"}).decision().batch_sizes, (Batches{3, 9}));
  EXPECT_EQ(Controller(roster, {.policy = "isochron"}).decision().batch_sizes, (Batches{6, 6}));
}

TEST(IsochronPolicyTest, StartsFromTheSpeedsOfAnEarlierRun) {
  Roster roster = roster_of(2, 12);
  roster.workers[0].former_speed = 50.0;
  roster.workers[1].former_speed = 10.0;
  EXPECT_EQ(Controller(roster, {.policy = "isochron"}).decision().batch_sizes, (Batches{10, 2}));
  roster.workers[1].former_speed = 0.0;  // not all are known
  EXPECT_EQ(Controller(roster, {.policy = "isochron"}).decision().batch_sizes, (Batches{6, 6}));
}

TEST(IsochronPolicyTest, TakesTheRiskOfANoisyWorkerIntoAccount) {
  // Equal mean speeds; worker 3 is ten times as noisy, so it must get less than a quarter.
  const auto share_with = [](const char* policy) {
    Random random({3});
    const Times uneven = [&random](std::size_t k, double batch) {
      return batch * std::exp((k == 3 ? 0.2 : 0.02) * random.normal());
    };
    Controller controller(roster_of(4, 4000), {.policy = policy});
    double sum = 0.0;
    for (int n = 0; n < 200; ++n) {
      const Batches& batches = step(controller, uneven).batch_sizes;
      sum += n < 100 ? 0.0 : static_cast<double>(batches[3]);
    }
    return sum / 100.0;
  };
  // Each worker is to be the straggler a quarter of the time: exp(0.674 x 0.2) against exp(0.674 x 0.02), so that
  // worker 3 gets 0.886 / 3.886 of 4000 = 912 samples, within the error of its estimated speed.
  EXPECT_NEAR(share_with("isochron"), 912.0, 40.0);
  EXPECT_NEAR(share_with("isochron:risk=off"), 1000.0, 60.0);
}

TEST(IsochronPolicyTest, FearsNoiseMoreWhereAllWaitOften) {
  // A step of n parts with a synchronisation point after each takes as long as the slowest worker of every part. Three
  // slow workers are noisy and a fast one is not: the split must beat the one that knows of a single point.
  constexpr std::int64_t kParts = 25;
  constexpr double kSpeeds[] = {6, 6, 4, 32};
  constexpr double kNoise[] = {0.3, 0.3, 0.3, 0.02};  // of a part
  const auto seconds_with = [&](std::int64_t sync_points) {
    Random random({4});
    Controller controller(roster_of(4, 4800), {.policy = "isochron"});
    double sum = 0.0;
    for (int n = 0; n < 300; ++n) {
      const Batches batches = controller.decision().batch_sizes;
      std::vector<double> own(4, 0.0);
      double together = 0.0;
      for (std::int64_t part = 0; part < kParts; ++part) {
        double slowest = 0.0;
        for (std::size_t k = 0; k < 4; ++k) {
          const double mean = static_cast<double>(batches[k]) / kSpeeds[k] / kParts;
          const double seconds = mean * std::exp(kNoise[k] * random.normal());
          own[k] += seconds;
          slowest = std::max(slowest, seconds);
        }
        together += slowest;
      }
      sum += n < 100 ? 0.0 : together;
      step(controller, [&](std::size_t k, double) { return own[k]; }, sync_points);
    }
    return sum / 200.0;
  };
  EXPECT_LT(seconds_with(kParts), 0.97 * seconds_with(1));
}

}  // namespace
}  // namespace isochron
