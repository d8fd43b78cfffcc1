#include "isochron/core/trace/share_gain.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

namespace isochron {
namespace {

using Seconds = std::function<double(std::size_t worker, double batch)>;

std::vector<RunHeader::Member> members(std::size_t count) {
  std::vector<RunHeader::Member> members;
  for (WorkerId id = 0; id < count; ++id) {
    members.push_back({.id = id, .name = "w", .kind = "cpu"});
  }
  return members;
}

/// A step takes as long as its slowest worker, and `rest` more.
StepRecord step_of(const std::vector<std::int64_t>& batches, const Seconds& seconds, double rest) {
  StepRecord record;
  for (std::size_t k = 0; k < batches.size(); ++k) {
    const double own = seconds(k, static_cast<double>(batches[k]));
    record.workers.push_back({.id = k, .batch = batches[k], .compute_seconds = own});
    record.seconds = std::max(record.seconds, own);
  }
  record.seconds += rest;
  return record;
}

/// Some steps with equal shares, as every job begins, and then with others.
ShareGain gain_of(const std::vector<std::int64_t>& shares, const Seconds& seconds, double rest) {
  const std::int64_t equal = 100;
  ShareGain gain(equal * std::ssize(shares), members(shares.size()));
  gain.add(step_of(std::vector<std::int64_t>(shares.size(), equal), seconds, rest));
  for (int step = 0; step < 40; ++step) {
    gain.add(step_of(shares, seconds, rest));
  }
  return gain;
}

TEST(ShareGainTest, KnowsWhatEqualSharesWouldTake) {
  // 1 and 4 ms a sample. 160 and 40 take 0.16 s each, equal shares 0.4 s, and 0.04 s more: 0.44 / 0.2.
  const Seconds linear = [](std::size_t k, double batch) { return (k == 0 ? 0.001 : 0.004) * batch; };
  const ShareGain::Estimate estimate = gain_of({160, 40}, linear, 0.04).estimate();
  EXPECT_NEAR(estimate.now, 2.2, 0.05);
  EXPECT_NEAR(estimate.best, 2.2, 0.05);
}

TEST(ShareGainTest, NoSplitIsBetterThanOneInWhichNobodyWaits) {
  // The workers change places in the middle of the last steps, and the shares with them: nobody ever waits.
  const Seconds first = [](std::size_t k, double batch) { return (k == 0 ? 0.001 : 0.0015) * batch; };
  const Seconds then = [](std::size_t k, double batch) { return (k == 0 ? 0.0015 : 0.001) * batch; };
  ShareGain gain = gain_of({120, 80}, first, 0.0);
  for (int step = 0; step < 12; ++step) {
    gain.add(step_of({80, 120}, then, 0.0));
  }
  const ShareGain::Estimate estimate = gain.estimate();
  EXPECT_LE(estimate.best, estimate.now * 1.001);
}

TEST(ShareGainTest, WhatIsLeftOverAtTheEndOfAnEpochIsNoSplit) {
  // As above; 8 and 2 samples are no 16 times as fast as 100 and 100, and their equal shares would be 5 and 5.
  const Seconds linear = [](std::size_t k, double batch) { return (k == 0 ? 0.001 : 0.004) * batch; };
  ShareGain gain = gain_of({160, 40}, linear, 0.0);
  gain.add(step_of({8, 2}, linear, 0.0));
  EXPECT_NEAR(gain.estimate().now, 2.5, 0.05);
  EXPECT_EQ(gain.workers().at(0).batch, 160);
}

TEST(ShareGainTest, LearnsTheFixedPartFromAMove) {
  // s (100 + b), so half of a step with equal shares is fixed. 180 and 20 take 0.28 and 0.48 s, equal shares 0.8 s.
  // Without the fixed part one would say 0.48 x 100 / 20 = 2.4 s.
  const Seconds fixed = [](std::size_t k, double batch) { return (k == 0 ? 0.001 : 0.004) * (100.0 + batch); };
  EXPECT_NEAR(gain_of({180, 20}, fixed, 0.0).estimate().now, 0.8 / 0.48, 0.06);
}

TEST(ShareGainTest, TakesAProbesWordForTheFixedPart) {
  // Equal shares from the beginning to the end: nothing has moved. 0.1 and 0.4 s.
  const Seconds seconds = [](std::size_t k, double batch) { return (k == 0 ? 0.001 : 0.004) * batch; };
  ShareGain gain = gain_of({100, 100}, seconds, 0.0);
  EXPECT_NEAR(gain.estimate().now, 1.0, 1e-6);
  gain.set_fixed_share(0, 0.0);
  gain.set_fixed_share(1, 0.0);
  EXPECT_NEAR(gain.estimate().best, 2.5, 0.01);  // 160 and 40: 0.16 s
  // 0.36 s of the slow one's are fixed: 199 and 1 samples take 0.199 and 0.3604 s, and nothing is faster.
  gain.set_fixed_share(1, 0.9);
  EXPECT_NEAR(gain.estimate().best, 0.4 / 0.36, 0.01);
}

TEST(ShareGainTest, SaysNothingWhereNothingIsKnown) {
  const Seconds seconds = [](std::size_t, double batch) { return 0.001 * batch; };
  EXPECT_TRUE(std::isnan(gain_of({100}, seconds, 0.0).estimate().now));  // alone
  ShareGain young(200, members(2));
  for (std::size_t step = 0; step + 1 < ShareGain::kFewest; ++step) {
    young.add(step_of({100, 100}, seconds, 0.0));
  }
  EXPECT_TRUE(std::isnan(young.estimate().now));
  young.add(step_of({100, 100}, seconds, 0.0));
  EXPECT_NEAR(young.estimate().now, 1.0, 1e-6);
  // Samples of unequal cost: times do not follow the batch.
  int turn = 0;
  const Seconds wild = [&turn](std::size_t, double) { return std::exp(static_cast<double>(turn++ * 7 % 5)); };
  EXPECT_TRUE(std::isnan(gain_of({120, 80}, wild, 0.0).estimate().now));
}

TEST(ShareGainTest, FollowsWhoIsThere) {
  const Seconds seconds = [](std::size_t k, double batch) { return (k == 1 ? 0.004 : 0.001) * batch; };
  ShareGain gain = gain_of({130, 40, 130}, seconds, 0.0);
  EXPECT_NEAR(gain.estimate().now, 0.4 / 0.16, 0.05);
  for (int step = 0; step < 10; ++step) {  // the slow one is gone
    StepRecord record = step_of({150, 40, 150}, seconds, 0.0);
    record.workers.erase(record.workers.begin() + 1);
    record.seconds = 0.15;
    gain.add(record);
  }
  EXPECT_NEAR(gain.estimate().now, 1.0, 0.05);
}

}  // namespace
}  // namespace isochron
