#include "isochron/core/policy/memory_ceilings.h"

#include <gtest/gtest.h>

#include "isochron/core/curve/curve.h"

namespace isochron {
namespace {

constexpr std::int64_t kLeast = 1;
constexpr std::int64_t kGlobalBatch = 1000;

TEST(MemoryCeilingsTest, FallBelowTheBatchThatFailed) {
  for (const std::int64_t batch : {1, 2, 7, 8, 9, 96, 100}) {
    MemoryCeilings ceilings;
    ceilings.failed(3, batch, 0);
    EXPECT_LT(ceilings.limit(3, 0, kNoLimit), std::max<std::int64_t>(batch, 2)) << batch;
    EXPECT_GE(ceilings.limit(3, 0, kNoLimit), 1) << batch;
  }
}

TEST(MemoryCeilingsTest, ConcernTheWorkerThatFailedOnly) {
  MemoryCeilings ceilings;
  ceilings.failed(3, 96, 0);
  EXPECT_EQ(ceilings.limit(3, kLeast, kNoLimit), 84);
  EXPECT_EQ(ceilings.limit(2, kLeast, kNoLimit), kNoLimit);
  ceilings.forget(3);
  EXPECT_EQ(ceilings.limit(3, kLeast, kNoLimit), kNoLimit);
}

TEST(MemoryCeilingsTest, KeepToTheWorkersOwnBounds) {
  MemoryCeilings ceilings;
  ceilings.failed(3, 96, 0);
  EXPECT_EQ(ceilings.limit(3, kLeast, 64), 64);
  EXPECT_EQ(ceilings.limit(3, 90, 200), 90);
}

TEST(MemoryCeilingsTest, RiseAfterAWaitThatEveryFailureDoubles) {
  MemoryCeilings ceilings;
  ceilings.failed(3, 96, 10);
  EXPECT_FALSE(ceilings.raise(59, kGlobalBatch));
  EXPECT_TRUE(ceilings.raise(60, kGlobalBatch));
  EXPECT_EQ(ceilings.limit(3, kLeast, kNoLimit), 94);
  ceilings.failed(3, 94, 61);
  EXPECT_FALSE(ceilings.raise(160, kGlobalBatch));
  EXPECT_TRUE(ceilings.raise(161, kGlobalBatch));
}

TEST(MemoryCeilingsTest, AreForgottenOnceTheyHoldTheGlobalBatch) {
  MemoryCeilings ceilings;
  ceilings.failed(3, 96, 0);
  for (std::int64_t step = 0; step < 10'000; ++step) {
    ceilings.raise(step, kGlobalBatch);
  }
  EXPECT_EQ(ceilings.limit(3, kLeast, kNoLimit), kNoLimit);
}

TEST(MemoryCeilingsTest, AreGivenUpOnceAStep) {
  MemoryCeilings ceilings;
  EXPECT_FALSE(ceilings.give_up(10)) << "there are none";
  ceilings.failed(3, 96, 10);
  ceilings.failed(4, 96, 10);
  EXPECT_TRUE(ceilings.give_up(10));
  EXPECT_EQ(ceilings.limit(3, kLeast, kNoLimit), kNoLimit);
  EXPECT_EQ(ceilings.limit(4, kLeast, kNoLimit), kNoLimit);

  ceilings.failed(3, 96, 10);
  MemoryCeilings copy;
  restore_state(copy, save_state(ceilings));
  EXPECT_FALSE(copy.give_up(10));
  EXPECT_EQ(copy.limit(3, kLeast, kNoLimit), 84);
  EXPECT_TRUE(copy.give_up(11));
}

TEST(MemoryCeilingsTest, AreAValue) {
  MemoryCeilings ceilings;
  ceilings.failed(3, 96, 10);
  MemoryCeilings copy;
  restore_state(copy, save_state(ceilings));
  EXPECT_EQ(copy.limit(3, kLeast, kNoLimit), 84);
  EXPECT_TRUE(copy.raise(60, kGlobalBatch));
}

}  // namespace
}  // namespace isochron
