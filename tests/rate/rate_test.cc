#include "isochron/core/rate/rate.h"

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

RateSchedule schedule(RateRule rule, std::int64_t reference, double warmup = 0.0, std::int64_t batch = 128) {
  return {{.rule = rule, .reference_batch = reference, .warmup_steps = warmup}, batch};
}

TEST(RateTest, ScalesWithTheGlobalBatchOverTheReference) {
  // k = 128 / 32 = 4.
  EXPECT_EQ(schedule(RateRule::kNone, 32).factor(0), 1.0);
  EXPECT_EQ(schedule(RateRule::kLinear, 32).factor(0), 4.0);
  EXPECT_EQ(schedule(RateRule::kSqrt, 32).factor(0), 2.0);
  EXPECT_EQ(schedule(RateRule::kLegw, 32).factor(0), 2.0);
  EXPECT_EQ(schedule(RateRule::kAdaScale, 32).factor(0), 1.0);
}

TEST(RateTest, IsOneWhenTheReferenceIsTheGlobalBatch) {
  for (const RateRule rule : {RateRule::kNone, RateRule::kLinear, RateRule::kSqrt, RateRule::kLegw}) {
    EXPECT_EQ(schedule(rule, 0).factor(7), 1.0);
    EXPECT_EQ(schedule(rule, 128).factor(7), 1.0);
  }
}

TEST(RateTest, KeepsTheEpochsOfAPlainWarmUp) {
  // 100 steps of 32 samples are 25 steps of 128: the first factor is 4 / 25, half way (step 12.5) would be 2.
  const RateSchedule linear = schedule(RateRule::kLinear, 32, 100.0);
  EXPECT_DOUBLE_EQ(linear.factor(0), 4.0 / 25.0);
  EXPECT_DOUBLE_EQ(linear.factor(11), 4.0 * 12.0 / 25.0);
  EXPECT_DOUBLE_EQ(linear.factor(23), 4.0 * 24.0 / 25.0);
  EXPECT_EQ(linear.factor(24), 4.0);
  EXPECT_EQ(linear.factor(1'000'000), 4.0);
}

TEST(RateTest, LengthensTheEpochsOfTheLegwWarmUpByTheBatchRatio) {
  // 4 times the epochs at a quarter of the steps per epoch: 100 steps stay 100 steps; at sqrt(4) = 2.
  const RateSchedule legw = schedule(RateRule::kLegw, 32, 100.0);
  EXPECT_DOUBLE_EQ(legw.factor(0), 2.0 / 100.0);
  EXPECT_DOUBLE_EQ(legw.factor(49), 1.0);
  EXPECT_DOUBLE_EQ(legw.factor(98), 2.0 * 99.0 / 100.0);
  EXPECT_EQ(legw.factor(99), 2.0);
}

// Gradients of `batches[k]` samples each, with 20 coordinates: mean 0.5, variance 1 per sample and coordinate.
constexpr int kCoordinates = 20;
constexpr double kMeanSquare = kCoordinates * 0.25;

GradientMoments synthetic_step(const std::vector<std::int64_t>& batches, Random& random) {
  double total = 0.0;
  for (const std::int64_t batch : batches) {
    total += static_cast<double>(batch);
  }
  GradientMoments moments{.workers = static_cast<std::int64_t>(batches.size())};
  for (int i = 0; i < kCoordinates; ++i) {
    double global = 0.0;
    for (const std::int64_t batch : batches) {
      const auto samples = static_cast<double>(batch);
      const double local = 0.5 + random.normal() / std::sqrt(samples);
      global += samples / total * local;
      moments.mean_local_square += samples / total * local * local;
    }
    moments.global_square += global * global;
  }
  return moments;
}

TEST(AdaScaleTest, EstimatesTheGainWithoutBiasFromUnequalBatches) {
  // Reference 8, so k = 16 at B = 128. At the reference the variance is 20 / 8 = 2.5, mu^2 is 5:
  // r = (2.5 + 5) / (2.5 / 16 + 5) = 1.4545...
  // A step's estimate of V / B has a relative standard deviation of sqrt(2 / (20 x 3)) = 0.18 for four workers; the
  // moving average over 1000 / 16 steps brings it to 0.18 / sqrt(2 x 62.5) = 0.016, and that of mu^2 = 5 from
  // 2 x 0.5 x sqrt(20 / 128) / 5 = 0.08 to 0.007: r is within 0.02 at five of them.
  const double expected = 7.5 / (2.5 / 16.0 + 5.0);
  Random random({42});
  for (const auto& batches : std::vector<std::vector<std::int64_t>>{{32, 32, 32, 32}, {4, 4, 20, 100}}) {
    RateSchedule rate = schedule(RateRule::kAdaScale, 8);
    for (int step = 0; step < 1000; ++step) {
      rate.observe(synthetic_step(batches, random));
    }
    EXPECT_NEAR(rate.factor(0), expected, 0.025);
  }
}

TEST(AdaScaleTest, AveragesToTheTrueMoments) {
  // k = 0.001 keeps a plain mean over the first 10^6 steps. With N = 20,000 steps the mean of V / B = 20 / 128 has a
  // relative standard deviation of 0.18 / sqrt(N) = 0.0013, so k V / B = 1.5625e-4 is known to 5 x 2e-7, and mu^2 = 5
  // to 5 x 0.4 / sqrt(N) = 0.014. An estimator for equal batches, dividing by 1 / sum (b_k / B)^2 - 1 = 0.57 in place
  // of K - 1 = 3, would be five times off.
  Random random({43});
  RateSchedule rate = schedule(RateRule::kAdaScale, 128'000);
  for (int step = 0; step < 20'000; ++step) {
    rate.observe(synthetic_step({4, 4, 20, 100}, random));
  }
  const State state = save_state(rate);
  EXPECT_NEAR(state.numbers.at("variance").front(), 0.001 * kCoordinates / 128.0, 1e-6);
  EXPECT_NEAR(state.numbers.at("mean_square").front(), kMeanSquare, 0.014);
}

TEST(AdaScaleTest, StaysBetweenOneAndTheBatchRatio) {
  RateSchedule noisy = schedule(RateRule::kAdaScale, 32);
  noisy.observe({.mean_local_square = 9.0, .global_square = 1.0, .workers = 4});  // mu^2 estimated as 1 - 8 / 3 < 0
  EXPECT_DOUBLE_EQ(noisy.factor(0), 4.0);
  RateSchedule exact = schedule(RateRule::kAdaScale, 32);
  exact.observe({.mean_local_square = 9.0, .global_square = 9.0, .workers = 4});
  EXPECT_DOUBLE_EQ(exact.factor(0), 1.0);
}

TEST(AdaScaleTest, IgnoresWhatIsNoMeasurement) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  RateSchedule rate = schedule(RateRule::kAdaScale, 32);
  const State untouched = save_state(rate);
  for (const double bad : {std::nan(""), kInfinity, -1.0, 0.0}) {
    rate.observe({.mean_local_square = bad, .global_square = 1.0, .workers = 4});
    rate.observe({.mean_local_square = 1.0, .global_square = bad, .workers = 4});
  }
  rate.observe({.mean_local_square = 2.0, .global_square = 1.0, .workers = 1});
  EXPECT_EQ(save_state(rate), untouched);
  rate.observe({.mean_local_square = 1e308, .global_square = 1e-300, .workers = 2});
  EXPECT_TRUE(std::isfinite(rate.factor(0)));
}

TEST(AdaScaleTest, ContinuesIdenticallyFromARestoredState) {
  Random random({44});
  RateSchedule original = schedule(RateRule::kAdaScale, 32);
  for (int step = 0; step < 10; ++step) {
    original.observe(synthetic_step({10, 118}, random));
  }
  RateSchedule copy = schedule(RateRule::kAdaScale, 32);
  restore_state(copy, save_state(original));
  for (int step = 0; step < 10; ++step) {
    const GradientMoments moments = synthetic_step({64, 64}, random);
    original.observe(moments);
    copy.observe(moments);
    EXPECT_EQ(copy.factor(step), original.factor(step));
  }
}

TEST(RateTest, NamesTheOptionTheValueAndWhatIsPermitted) {
  const auto message = [](const RateOptions& options, std::int64_t batch) -> std::string {
    try {
      const RateSchedule rate(options, batch);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(
      message({.reference_batch = -5}, 128), "reference batch is -5; permitted: 1 or more, or 0 for the global batch");
  EXPECT_EQ(message({.warmup_steps = -1.0}, 128), "warm-up steps is -1; permitted: a finite number, 0 or more");
  EXPECT_NE(message({.warmup_steps = std::nan("")}, 128), "no error");
  EXPECT_EQ(message({}, 0), "global batch is 0; permitted: 1 or more");
}

TEST(RateTest, ParsesTheNamesItPrints) {
  for (const RateRule rule :
       {RateRule::kNone, RateRule::kLinear, RateRule::kSqrt, RateRule::kLegw, RateRule::kAdaScale}) {
    EXPECT_EQ(parse_rate_rule(to_string(rule)), rule);
  }
  try {
    parse_rate_rule("cubic");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "learning-rate rule is 'cubic'; permitted: none, linear, sqrt, legw, adascale");
  }
}

TEST(PushFactorTest, MomentumIsLessByWhatWorkersAdd) {
  EXPECT_DOUBLE_EQ(asynchronous_momentum(0.9, 1), 0.9);
  // 1 - 4 (1 - 0.9); with 4 workers' own 1 - 1/4 that makes 1 - 0.4 / 4 = 0.9.
  EXPECT_DOUBLE_EQ(asynchronous_momentum(0.9, 4), 0.6);
  EXPECT_EQ(asynchronous_momentum(0.9, 20), 0.0);
}

TEST(PushFactorTest, FollowsBatchAndStaleness) {
  // b_k K / B = 128 x 4 / 128 = 4; tau = 3.
  EXPECT_EQ(push_factor({}, 128, 128, 4, 3), 1.0);
  EXPECT_EQ(push_factor({.by_batch = true}, 128, 128, 4, 3), 4.0);
  EXPECT_EQ(push_factor({.by_batch_sqrt = true}, 128, 128, 4, 3), 2.0);
  EXPECT_EQ(push_factor({.by_staleness = true}, 128, 128, 4, 3), 0.25);
  EXPECT_EQ(push_factor({.by_batch = true, .by_staleness = true}, 128, 128, 4, 3), 1.0);
  EXPECT_EQ(push_factor({.by_batch_sqrt = true, .by_staleness = true}, 128, 128, 4, 0), 2.0);
}

TEST(PushFactorTest, RefusesARuleThatContradictsItself) {
  EXPECT_THROW(push_factor({.by_batch = true, .by_batch_sqrt = true}, 1, 1, 1, 0), std::invalid_argument);
  EXPECT_THROW(push_factor({}, 1, 1, 1, -1), InvariantError);
}

TEST(PushFactorTest, LeavesTheMeanOverTheWorkersAtOne) {
  const std::array<std::int64_t, 4> batches{6, 6, 4, 112};
  double sum = 0.0;
  for (const std::int64_t batch : batches) {
    sum += push_factor({.by_batch = true}, batch, 128, 4, 0);
  }
  EXPECT_DOUBLE_EQ(sum / 4.0, 1.0);
}

}  // namespace
}  // namespace isochron
