#include "isochron/plan/modes.h"

#include <vector>

#include "machines.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::plan {
namespace {

/// Two machines of 10 samples a second, with a link of 100 bytes a second.
std::vector<Group> pair(double noise = 0.0) {
  std::vector<Group> groups{linear_group("a", 0.1, 2)};
  groups[0].machine.link = {.bytes_per_second = 100.0};
  groups[0].machine.noise = noise;
  return groups;
}

TEST(ModesTest, FewerBytesAndFewerExchangesAreFasterOverASlowLink) {
  // 20 samples in a second, and 300 bytes in 3 s; 1.5 and 0.75 s compressed.
  const std::vector<Mode> modes = predict_modes(pair(), {.gradient_bytes = 300.0}, 20);
  ASSERT_EQ(modes.size(), 4U);
  EXPECT_NEAR(modes[0].samples_per_second, 20.0 / 4.0, 1e-3);
  EXPECT_NEAR(modes[0].exchange_share, 0.75, 1e-4);
  EXPECT_NEAR(modes[1].samples_per_second, 20.0 / 2.5, 1e-3);
  EXPECT_NEAR(modes[2].samples_per_second, 20.0 / 1.75, 1e-3);
  // H >= 3 x 0.95 / (0.05 x 1): rounds of 57 steps and 60 s.
  EXPECT_EQ(modes[3].round_steps, 57);
  EXPECT_NEAR(modes[3].samples_per_second, 57.0 * 20.0 / 60.0, 1e-2);
  EXPECT_EQ(least_near_best(modes).options, "--sync local");
}

TEST(ModesTest, WhatIsExactIsTakenWhereItIsNearlyAsFast) {
  const std::vector<Mode> modes = predict_modes(pair(), {.gradient_bytes = 5.0}, 20);
  EXPECT_EQ(modes[3].round_steps, 1);
  EXPECT_EQ(least_near_best(modes).options, "--sync bsp");
  // 0.25 s in step, 0.125 s with half the bytes: 16, 17.8, 18.8 and 19 samples a second.
  EXPECT_EQ(least_near_best(predict_modes(pair(), {.gradient_bytes = 25.0}, 20)).options, "--compression bf16");
}

TEST(ModesTest, TheNoiseOfLocalStepsAveragesOut) {
  const std::vector<Mode> modes = predict_modes(pair(0.2), {.gradient_bytes = 300.0}, 20);
  // E[max] of two is 1.14 s at 0.2, and 1.015 s at 0.2 / sqrt(51).
  EXPECT_LT(modes[0].samples_per_second, 20.0 / 4.1);
  EXPECT_GT(modes[3].samples_per_second, 18.5);
}

}  // namespace
}  // namespace isochron::plan
