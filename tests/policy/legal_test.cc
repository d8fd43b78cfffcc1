#include "isochron/core/policy/legal.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "tests/policy/support.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

double distance(std::span<const std::int64_t> batches, std::span<const double> wished) {
  double sum = 0.0;
  for (std::size_t k = 0; k < batches.size(); ++k) {
    sum += std::pow(static_cast<double>(batches[k]) - wished[k], 2);
  }
  return sum;
}

// The least distance over all splits of `left` samples among the workers from `place` on.
double least_distance(const Roster& roster, std::span<const double> wished, std::size_t place, std::int64_t left) {
  if (place == roster.workers.size()) {
    return left == 0 ? 0.0 : std::numeric_limits<double>::infinity();
  }
  const Worker& worker = roster.workers[place];
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t batch = worker.min_batch; batch <= std::min(worker.max_batch, left); ++batch) {
    if (batch % worker.granularity == 0) {
      const double here = std::pow(static_cast<double>(batch) - wished[place], 2);
      least = std::min(least, here + least_distance(roster, wished, place + 1, left - batch));
    }
  }
  return least;
}

TEST(LegalTest, TakesALegalSplitAsItIs) {
  const Roster roster = roster_of({1, 1, 1}, 12);
  EXPECT_THAT(as_legal(roster, std::vector{3.0, 4.0, 5.0}), Optional(ElementsAre(3, 4, 5)));
}

TEST(LegalTest, RefusesASumBoundsFractionsAndOddNumbers) {
  Roster roster = roster_of({1, 1, 1}, 12);
  roster.workers[0].min_batch = 2;
  roster.workers[1].max_batch = 4;
  EXPECT_EQ(as_legal(roster, std::vector{3.0, 4.0, 6.0}), std::nullopt);
  EXPECT_EQ(as_legal(roster, std::vector{1.0, 4.0, 7.0}), std::nullopt);
  EXPECT_EQ(as_legal(roster, std::vector{2.0, 5.0, 5.0}), std::nullopt);
  EXPECT_EQ(as_legal(roster, std::vector{3.5, 3.5, 5.0}), std::nullopt);
  EXPECT_EQ(as_legal(roster, std::vector{3.0, 4.0, kUnknown}), std::nullopt);
  EXPECT_EQ(as_legal(roster, std::vector{3.0, 4.0, std::numeric_limits<double>::infinity()}), std::nullopt);
  EXPECT_EQ(as_legal(roster, std::vector{3.0, -4.0, 13.0}), std::nullopt);
}

TEST(LegalTest, LetsOneWorkerOfTheSmallestGranularityTakeTheRemainder) {
  // 30 = 3 * 8 + 6: one worker of granularity 8 has 6 on top, never the one of granularity 16.
  Roster roster = roster_of({1, 1, 1}, 30);
  roster.workers[0].granularity = 16;
  roster.workers[1].granularity = 8;
  roster.workers[2].granularity = 8;
  EXPECT_THAT(as_legal(roster, std::vector{16.0, 8.0, 6.0}), Optional(ElementsAre(16, 8, 6)));
  EXPECT_THAT(as_legal(roster, std::vector{0.0, 14.0, 16.0}), std::nullopt);  // below the least batch of 1
  EXPECT_EQ(as_legal(roster, std::vector{22.0, 8.0, 0.0}), std::nullopt);
  EXPECT_EQ(as_legal(roster, std::vector{16.0, 11.0, 3.0}), std::nullopt);
}

TEST(LegalTest, SpreadsASurplusEqually) {
  // 131 - 128 = 3 too many: 0.75 from each of the four, then whole numbers; the first ones keep the rest.
  EXPECT_THAT(
      nearest_legal(roster_of({1, 1, 1, 1}, 128), std::vector{17.0, 17.0, 16.0, 81.0}), ElementsAre(17, 16, 15, 80));
}

TEST(LegalTest, TurnsNegativeAndInfiniteWishesIntoBounds) {
  Roster roster = roster_of({1, 1, 1}, 30);
  roster.workers[2].max_batch = 20;
  EXPECT_THAT(
      nearest_legal(roster, std::vector{-50.0, 10.0, std::numeric_limits<double>::infinity()}), ElementsAre(1, 9, 20));
}

TEST(LegalTest, IsTheNearestOfAllSplits) {
  Random random({1});
  for (int trial = 0; trial < 300; ++trial) {
    Roster roster = roster_of({1, 1, 1, 1}, 0);
    const std::int64_t granularity = 1 + static_cast<std::int64_t>(random.below(3));
    std::int64_t room = 0;
    for (Worker& worker : roster.workers) {
      worker.granularity = granularity;
      worker.min_batch = granularity * static_cast<std::int64_t>(random.below(3));
      worker.max_batch = worker.min_batch + granularity * static_cast<std::int64_t>(random.below(5));
      roster.global_batch += worker.min_batch;
      room += worker.max_batch - worker.min_batch;
    }
    roster.global_batch +=
        granularity * static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(room / granularity + 1)));
    if (roster.global_batch == 0) {
      continue;
    }
    std::vector<double> wished;
    wished.reserve(roster.workers.size());
    for (std::size_t k = 0; k < roster.workers.size(); ++k) {
      wished.push_back(static_cast<double>(roster.global_batch) * random.uniform());
    }
    const std::vector<std::int64_t> batches = nearest_legal(roster, wished);
    EXPECT_NEAR(distance(batches, wished), least_distance(roster, wished, 0, roster.global_batch), 1e-9) << trial;
  }
}

TEST(LegalTest, SaysWhenNoSplitExists) {
  Roster roster = roster_of({1, 1}, 30);
  roster.workers[0].max_batch = 10;
  roster.workers[1].max_batch = 10;
  EXPECT_THROW((void)nearest_legal(roster, std::vector{15.0, 15.0}), std::invalid_argument);
}

}  // namespace
}  // namespace isochron
