#include "isochron/core/predict/level_bank.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/predict/common_mode.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

void feed(LevelBank& bank, double reading, LevelBank::Verdict verdict = LevelBank::Verdict::kOrdinary) {
  bank.predict(0.0);
  bank.update({.reading = reading, .verdict = verdict, .jumped_to = reading});
  bank.weigh(bank.log_likelihood());
}

TEST(LevelBankTest, AveragesSteadyNoise) {
  Random random({1});
  LevelBank bank;
  bank.reset(1.0);
  for (int n = 0; n < 400; ++n) {
    feed(bank, 1.0 + 0.05 * random.normal());
  }
  // A mean over hundreds of readings would be within 0.05 / sqrt(100); the noise's own estimate remembers 50.
  EXPECT_NEAR(bank.belief().level, 1.0, 0.015);
  EXPECT_NEAR(std::sqrt(bank.unbiased_noise()), 0.05, 0.02);
  EXPECT_LT(bank.belief().variance, 0.1 * bank.belief().noise);
}

TEST(LevelBankTest, FollowsARandomWalk) {
  Random random({2});
  LevelBank bank;
  bank.reset(0.0);
  double level = 0.0;
  double squares = 0.0;
  for (int n = 0; n < 500; ++n) {
    level += 0.1 * random.normal();
    const double before = bank.belief().level;
    squares += n < 100 ? 0.0 : std::pow(level - before, 2);
    feed(bank, level + 0.01 * random.normal());
  }
  // The walk itself moves by 0.1 a step; nothing predicts it better than 0.1.
  EXPECT_LT(std::sqrt(squares / 400.0), 0.12);
}

TEST(LevelBankTest, HoldsAnOutlierAndJumpsOnAChange) {
  LevelBank bank;
  bank.reset(0.0);
  for (int n = 0; n < 20; ++n) {
    feed(bank, n % 2 == 0 ? 0.01 : -0.01);
  }
  const double before = bank.belief().level;
  feed(bank, 5.0, LevelBank::Verdict::kHold);
  EXPECT_DOUBLE_EQ(bank.belief().level, before);
  feed(bank, 5.0, LevelBank::Verdict::kChanged);
  EXPECT_DOUBLE_EQ(bank.belief().level, 5.0);
}

TEST(LevelBankTest, ContinuesIdenticallyAfterARestore) {
  Random random({3});
  LevelBank bank;
  bank.reset(0.0);
  for (int n = 0; n < 10; ++n) {
    feed(bank, random.normal());
  }
  LevelBank copy;
  restore_state(copy, save_state(bank));
  for (int n = 0; n < 10; ++n) {
    const double reading = random.normal();
    feed(bank, reading);
    feed(copy, reading);
    ASSERT_EQ(bank.belief().level, copy.belief().level);
  }
}

TEST(CommonModeTest, RemovesWhatAllShareAndLeavesWhatTheyDoNot) {
  Random random({4});
  CommonMode shared;
  CommonMode apart;
  double left = 0.0;
  for (int n = 0; n < 300; ++n) {
    const double common = 0.1 * random.normal();
    std::vector<double> together;
    std::vector<double> alone;
    for (int k = 0; k < 8; ++k) {
      together.push_back(common + 0.01 * random.normal());
      alone.push_back(0.1 * random.normal());
    }
    const double estimate = shared.estimate(together);
    left += n < 150 ? 0.0 : std::abs(estimate - common);
    const double none = apart.estimate(alone);
    EXPECT_TRUE(n < 150 || none == 0.0) << n;
  }
  EXPECT_LT(left / 150.0, 0.02);
}

TEST(CommonModeTest, NeedsTwoWorkers) {
  CommonMode mode;
  EXPECT_EQ(mode.estimate(std::vector{3.0}), 0.0);
  EXPECT_EQ(mode.estimate({}), 0.0);
}

}  // namespace
}  // namespace isochron
