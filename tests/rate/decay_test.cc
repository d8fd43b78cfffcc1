#include "isochron/core/rate/decay.h"

#include <cmath>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

using ::testing::ThrowsMessage;

TEST(DecayTest, RisesLinearlyAndThenStays) {
  const DecayOptions options{.total_steps = 100, .warmup_steps = 4};
  EXPECT_EQ(decay_factor(options, 0), 0.25);
  EXPECT_EQ(decay_factor(options, 2), 0.75);
  EXPECT_EQ(decay_factor(options, 3), 1.0);
  EXPECT_EQ(decay_factor(options, 99), 1.0);
  EXPECT_EQ(decay_factor({.total_steps = 100}, 0), 1.0);
}

TEST(DecayTest, FallsByAFactorAfterEverySoManySteps) {
  const DecayOptions options{
      .decay = Decay::kStep, .total_steps = 100, .warmup_steps = 2, .step_factor = 0.5, .step_every = 30};
  EXPECT_EQ(decay_factor(options, 0), 0.5);  // half of the warm-up
  EXPECT_EQ(decay_factor(options, 29), 1.0);
  EXPECT_EQ(decay_factor(options, 30), 0.5);
  EXPECT_EQ(decay_factor(options, 60), 0.25);
  EXPECT_EQ(decay_factor(options, 99), 0.125);
}

TEST(DecayTest, FallsThreeTimesOverTheRunUnlessTold) {
  const DecayOptions options{.decay = Decay::kStep, .total_steps = 9};
  EXPECT_EQ(decay_factor(options, 2), 1.0);
  EXPECT_EQ(decay_factor(options, 3), 0.1);
  EXPECT_DOUBLE_EQ(decay_factor(options, 8), 0.01);
  EXPECT_EQ(decay_factor({.decay = Decay::kStep, .total_steps = 2}, 1), 0.1);  // a third of 2 steps is 1, at least
}

TEST(DecayTest, FollowsHalfACosineFromWarmUpToEnd) {
  // 90 steps after the warm-up: a third of them is cos(pi / 3) = 1 / 2, so 3 / 4; half of them 1 / 2.
  const DecayOptions options{.decay = Decay::kCosine, .total_steps = 100, .warmup_steps = 10};
  EXPECT_EQ(decay_factor(options, 4), 0.5);
  EXPECT_EQ(decay_factor(options, 9), 1.0);
  EXPECT_EQ(decay_factor(options, 10), 1.0);
  EXPECT_DOUBLE_EQ(decay_factor(options, 40), 0.75);
  EXPECT_DOUBLE_EQ(decay_factor(options, 55), 0.5);
  EXPECT_GT(decay_factor(options, 99), 0.0);
  EXPECT_EQ(decay_factor(options, 100), 0.0);
  EXPECT_EQ(decay_factor(options, 1'000), 0.0);  // it does not rise again
}

TEST(DecayTest, SurvivesAWarmUpThatIsLongerThanTheRun) {
  for (const Decay decay : {Decay::kConstant, Decay::kStep, Decay::kCosine}) {
    const DecayOptions options{.decay = decay, .total_steps = 1, .warmup_steps = 10};
    EXPECT_EQ(decay_factor(options, 0), 0.1);
  }
}

TEST(DecayTest, ParsesTheNamesItPrints) {
  for (const Decay decay : {Decay::kConstant, Decay::kStep, Decay::kCosine}) {
    EXPECT_EQ(parse_name(kDecayNames, "schedule", name_of(kDecayNames, decay)), decay);
  }
  EXPECT_THAT(
      [] { parse_name(kDecayNames, "schedule", "linear"); },
      ThrowsMessage<std::invalid_argument>("schedule is 'linear'; permitted: constant, step, cosine"));
}

TEST(DecayTest, NamesTheFieldTheValueAndWhatIsPermitted) {
  const auto refusal = [](const DecayOptions& options) { return [options] { options.validate(); }; };
  EXPECT_THAT(
      refusal({.total_steps = 0}), ThrowsMessage<std::invalid_argument>("total steps is 0; permitted: 1 or more"));
  EXPECT_THAT(
      refusal({.warmup_steps = -1}), ThrowsMessage<std::invalid_argument>("warmup is -1; permitted: 0 or more"));
  EXPECT_THAT(
      refusal({.step_factor = 1.5}),
      ThrowsMessage<std::invalid_argument>("step-factor is 1.5; permitted: above 0, at most 1"));
  EXPECT_THAT(
      refusal({.step_every = -3}),
      ThrowsMessage<std::invalid_argument>("step-every is -3; permitted: 1 or more, or 0 for a third of the run"));
  EXPECT_THROW(DecayOptions{.step_factor = std::nan("")}.validate(), std::invalid_argument);
  EXPECT_NO_THROW(DecayOptions{}.validate());
}

}  // namespace
}  // namespace isochron
