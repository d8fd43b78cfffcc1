#include "isochron/core/allocate/allocate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

using testing::ElementsAre;

Slot linear(double seconds_per_sample) {
  return {.curve = Curve::linear(seconds_per_sample)};
}

std::vector<std::int64_t> split(const std::vector<Slot>& slots, std::int64_t global_batch) {
  return allocate(slots, global_batch).batch_sizes;
}

std::string complaint(const std::vector<Slot>& slots, std::int64_t global_batch) {
  try {
    (void)allocate(slots, global_batch);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(AllocateTest, SharesInProportionToSpeed) {
  // Speeds 1 : 2 : 5 of 64 samples: 8, 16 and 40 take 8 x 1 = 16 x 0.5 = 40 x 0.2 = 8 s.
  const Allocation allocation = allocate(std::vector{linear(1.0), linear(0.5), linear(0.2)}, 64);
  EXPECT_THAT(allocation.batch_sizes, ElementsAre(8, 16, 40));
  EXPECT_DOUBLE_EQ(allocation.seconds, 8.0);
}

TEST(AllocateTest, KeepsTheGlobalBatchWhenSharesDoNotDivide) {
  // Three equal workers, 8 samples: the earlier two take one more.
  EXPECT_THAT(split({linear(1.0), linear(1.0), linear(1.0)}, 8), ElementsAre(3, 3, 2));
}

TEST(AllocateTest, CountsFixedCostsAndOffsets) {
  // 4 + b_0 = b_1 with b_0 + b_1 = 20 gives b_0 = 8; the same whether 4 s are computing or communication.
  EXPECT_THAT(split({{.curve = Curve::affine(4.0, 1.0)}, linear(1.0)}, 20), ElementsAre(8, 12));
  EXPECT_THAT(split({{.curve = Curve::linear(1.0), .offset_seconds = 4.0}, linear(1.0)}, 20), ElementsAre(8, 12));
}

TEST(AllocateTest, LeavesOutAWorkerWhoseFixedCostIsTooHigh) {
  // The second would need 100 s for its first sample; the first does all 20 in 20 s.
  EXPECT_THAT(split({linear(1.0), {.curve = Curve::affine(100.0, 0.001)}}, 20), ElementsAre(20, 0));
}

TEST(AllocateTest, FillsAPlateauBeforeItGrows) {
  // The first takes 4 s for up to 8 samples. Of 12, it gets 8 and the other 4: both take 4 s.
  EXPECT_THAT(split({{.curve = Curve::saturating(4.0, 0.0, 0.5)}, linear(1.0)}, 12), ElementsAre(8, 4));
}

TEST(AllocateTest, KeepsBounds) {
  // Without bounds 50 and 50.
  EXPECT_THAT(split({{.curve = Curve::linear(1.0), .max_batch = 30}, linear(1.0)}, 100), ElementsAre(30, 70));
  EXPECT_THAT(split({{.curve = Curve::linear(1.0), .min_batch = 80}, linear(1.0)}, 100), ElementsAre(80, 20));
}

TEST(AllocateTest, GivesMultiplesOfTheGranularity) {
  // Units of 8: 5 to share at speeds 1 : 3, finished at 8, 16.. and 8/3, 16/3, 8..: the tie at 8 s goes to the first.
  const double third = 8.0 / 3.0 / 8.0;
  EXPECT_THAT(
      split({{.curve = Curve::linear(1.0), .granularity = 8}, {.curve = Curve::linear(third), .granularity = 8}}, 40),
      ElementsAre(8, 32));
}

TEST(AllocateTest, PutsTheRemainderWhereItIsFinishedFirst) {
  // 44 = 5 x 8 + 4. Equal workers: 24 and 16, then the 4 on top of 16.
  const Slot by_eight{.curve = Curve::linear(1.0), .granularity = 8};
  EXPECT_THAT(split({by_eight, by_eight}, 44), ElementsAre(24, 20));
}

TEST(AllocateTest, TheRemainderKeepsTheUpperBound) {
  // The second is full at 16 and has no room for 4 more; its bound of 19 counts for the whole.
  const Slot by_eight{.curve = Curve::linear(1.0), .granularity = 8};
  const Slot bounded{.curve = Curve::linear(1.0), .max_batch = 19, .granularity = 8};
  EXPECT_THAT(split({by_eight, bounded}, 44), ElementsAre(28, 16));
}

TEST(AllocateTest, MixesGranularitiesThatDivideOneAnother) {
  // 21 samples, equal speeds, units of 8 and of 1: 8 + 13 takes 13 s, 16 + 5 takes 16 s.
  EXPECT_THAT(split({{.curve = Curve::linear(1.0), .granularity = 8}, linear(1.0)}, 21), ElementsAre(8, 13));
}

TEST(AllocateTest, SharesNothing) {
  const Allocation allocation = allocate(std::vector{linear(1.0), Slot{.offset_seconds = 2.0}}, 0);
  EXPECT_THAT(allocation.batch_sizes, ElementsAre(0, 0));
  EXPECT_EQ(allocation.seconds, 2.0);
}

TEST(AllocateTest, SharesAmongFreeWorkers) {
  EXPECT_THAT(split({Slot{}, Slot{}}, 5), ElementsAre(5, 0));
}

TEST(AllocateTest, SurvivesTheLargestBatch) {
  const std::vector<Slot> slots(5000, linear(1e-9));
  const std::vector<std::int64_t> batch_sizes = split(slots, kMaxGlobalBatch);
  EXPECT_EQ(std::accumulate(batch_sizes.begin(), batch_sizes.end(), std::int64_t{0}), kMaxGlobalBatch);
  EXPECT_LE(*std::ranges::max_element(batch_sizes), kMaxGlobalBatch / 5000 + 1);
  EXPECT_EQ(complaint(slots, kNoLimit), "global batch is 9223372036854775807; permitted: 0 to 1099511627776");
}

TEST(AllocateTest, SurvivesExtremeCurves) {
  // Slopes that vanish beside the fixed cost, and ones 30 orders of magnitude apart.
  const std::vector<Slot> slots{
      {.curve = Curve::affine(1e6, 1e-15)}, {.curve = Curve::linear(1e-15)}, {.curve = Curve::linear(1e15)}};
  const Allocation allocation = allocate(slots, 1'000'000'000'000);
  EXPECT_THAT(allocation.batch_sizes, ElementsAre(0, 1'000'000'000'000, 0));
  EXPECT_DOUBLE_EQ(allocation.seconds, 1e-3);
}

TEST(AllocateTest, RefusesBoundsThatCannotHoldTheBatch) {
  const Slot bounded{.curve = Curve::linear(1.0), .min_batch = 8, .max_batch = 32};
  EXPECT_EQ(
      complaint({bounded, bounded, bounded}, 128),
      "the workers can take at most 96 samples together (sum of max_batch), but the global batch is 128");
  EXPECT_EQ(
      complaint({bounded, bounded, bounded}, 20),
      "the workers take at least 24 samples together (sum of min_batch), but the global batch is 20");
  // Sums that do not fit 64 bits are cut, not wrapped.
  const Slot huge{.min_batch = kNoLimit};
  EXPECT_EQ(
      complaint({huge, huge}, 20),
      "the workers take at least 9223372036854775807 samples together (sum of min_batch), but the global batch is 20");
}

TEST(AllocateTest, RefusesGranularitiesThatCannotMakeTheBatch) {
  const Slot by_eight{.max_batch = 14, .granularity = 8};
  EXPECT_EQ(
      complaint({by_eight, by_eight}, 28),
      "no multiples of the granularities (8) within min_batch and max_batch add up to the global batch, 28");
  const Slot by_four{.min_batch = 4, .max_batch = 4, .granularity = 4};
  EXPECT_EQ(
      complaint({by_four, by_eight}, 16),
      "no multiples of the granularities (4, 8) within min_batch and max_batch add up to the global batch, 16");
  const Slot by_six{.granularity = 6};
  EXPECT_EQ(
      complaint({by_six, by_four}, 24),
      "granularities 4 and 6 do not divide one another; permitted: granularities each of which divides every larger "
      "one");
}

TEST(AllocateTest, RefusesFieldsOutOfRange) {
  EXPECT_EQ(complaint({}, 8), "there are no workers to share the global batch; permitted: 1 or more");
  EXPECT_EQ(complaint({Slot{}}, -1), "global batch is -1; permitted: 0 to 1099511627776");
  EXPECT_EQ(complaint({{.min_batch = -2}}, 8), "min_batch is -2; permitted: 0 or more");
  EXPECT_EQ(complaint({{.min_batch = 4, .max_batch = 3}}, 8), "max_batch is 3; permitted: at least min_batch, 4");
  EXPECT_EQ(complaint({{.granularity = 0}}, 8), "granularity is 0; permitted: 1 or more");
  EXPECT_EQ(complaint({{.offset_seconds = -1.0}}, 8), "offset_seconds is -1; permitted: a finite number, 0 or more");
  EXPECT_EQ(
      complaint({{.offset_seconds = std::nan("")}}, 8), "offset_seconds is nan; permitted: a finite number, 0 or more");
}

}  // namespace
}  // namespace isochron
