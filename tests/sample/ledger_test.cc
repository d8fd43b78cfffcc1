#include "isochron/core/sample/ledger.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "isochron/core/error.h"

namespace isochron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void enter(Ledger& ledger, std::int64_t first, std::int64_t last, WorkerId worker = 0) {
  ledger.stage({.positions = {first, last}, .worker = worker});
  ledger.commit();
}

TEST(LedgerTest, ProvesThatEachPositionWasUsedOnce) {
  Ledger ledger(10);
  enter(ledger, 4, 7, 1);
  enter(ledger, 0, 4, 0);
  EXPECT_FALSE(ledger.complete());
  EXPECT_THAT(ledger.gaps(), ElementsAre(Interval{7, 10}));
  enter(ledger, 7, 10, 2);
  EXPECT_TRUE(ledger.complete());
  EXPECT_THAT(ledger.gaps(), IsEmpty());
}

TEST(LedgerTest, ShowsWhatWasUsedTwiceAndByWhom) {
  Ledger ledger(20);
  enter(ledger, 0, 5, 1);
  enter(ledger, 8, 12, 2);
  enter(ledger, 3, 10, 3);
  EXPECT_THAT(ledger.duplicates(), ElementsAre(Use{{3, 5}, 3}, Use{{8, 10}, 3}));
  EXPECT_THAT(ledger.intervals(), ElementsAre(Interval{0, 12}));
  EXPECT_EQ(ledger.used(), 12);
  enter(ledger, 12, 20);
  EXPECT_FALSE(ledger.complete()) << "all are used, but some twice";
}

TEST(LedgerTest, ShowsWhatWasLost) {
  Ledger ledger(10);
  enter(ledger, 1, 3);
  enter(ledger, 4, 9);
  EXPECT_THAT(ledger.gaps(), ElementsAre(Interval{0, 1}, Interval{3, 4}, Interval{9, 10}));
}

TEST(LedgerTest, ForgetsAStepThatFailed) {
  Ledger ledger(4);
  ledger.stage({.positions = {0, 2}, .worker = 0});
  ledger.stage({.positions = {2, 4}, .worker = 1});
  ledger.discard();
  ledger.commit();
  EXPECT_EQ(ledger.used(), 0);
  enter(ledger, 0, 4, 1);
  EXPECT_TRUE(ledger.complete());
}

TEST(LedgerTest, NeedsOneIntervalForALongRunWithoutFaults) {
  Ledger ledger(std::int64_t{1} << 40);
  for (std::int64_t first = 0; first < 12'800'000; first += 128) {
    enter(ledger, first + 64, first + 128, 1);
    enter(ledger, first, first + 64, 0);
  }
  EXPECT_EQ(ledger.intervals().size(), 1U);
  EXPECT_EQ(ledger.used(), 12'800'000);
}

TEST(LedgerTest, MergesTheLedgersOfSeveralWorkers) {
  Ledger left(8);
  Ledger right(8);
  enter(left, 0, 2, 5);
  enter(left, 4, 6, 5);
  enter(right, 2, 4, 6);
  enter(right, 6, 8, 6);
  Ledger all(8);
  all.merge(left, 5);
  all.merge(right, 6);
  EXPECT_TRUE(all.complete());
  all.merge(right, 6);
  EXPECT_THAT(all.duplicates(), ElementsAre(Use{{2, 4}, 6}, Use{{6, 8}, 6}));
  Ledger again(8);
  again.merge(all, 7);
  EXPECT_EQ(again.duplicates(), all.duplicates()) << "what a ledger knows of duplicates is not lost";
}

RC_GTEST_PROP(LedgerTest, AgreesWithACountPerPosition, ()) {
  constexpr std::int64_t kSize = 40;
  Ledger ledger(kSize);
  std::vector<int> counts(kSize);
  const auto entries = *rc::gen::container<std::vector<std::pair<std::int64_t, std::int64_t>>>(
      rc::gen::pair(rc::gen::inRange<std::int64_t>(0, kSize + 1), rc::gen::inRange<std::int64_t>(0, kSize + 1)));
  for (auto [first, last] : entries) {
    if (first > last) {
      std::swap(first, last);
    }
    enter(ledger, first, last);
    for (std::int64_t position = first; position < last; ++position) {
      ++counts[static_cast<std::size_t>(position)];
    }
  }
  std::vector<int> recorded(kSize);
  const auto add = [&](const Interval& interval) {
    for (std::int64_t position = interval.first; position < interval.last; ++position) {
      ++recorded[static_cast<std::size_t>(position)];
    }
  };
  const std::vector<Interval> intervals = ledger.intervals();
  std::ranges::for_each(intervals, add);
  for (const Use& use : ledger.duplicates()) {
    add(use.positions);
  }
  RC_ASSERT(recorded == counts);
  RC_ASSERT(ledger.used() == kSize - std::ranges::count(counts, 0));
  for (std::size_t i = 1; i < intervals.size(); ++i) {
    RC_ASSERT(intervals[i - 1].last < intervals[i].first);
  }
}

TEST(LedgerTest, SurvivesARestartButNotAStepUnderWay) {
  Ledger ledger(10);
  enter(ledger, 0, 4, 1);
  enter(ledger, 6, 8, 2);
  enter(ledger, 3, 5, 3);
  ledger.stage({.positions = {8, 10}, .worker = 1});
  Ledger copy(10);
  restore_state(copy, State::parse(save_state(ledger).serialize()));
  copy.commit();
  EXPECT_EQ(copy.intervals(), ledger.intervals());
  EXPECT_EQ(copy.duplicates(), ledger.duplicates());
  EXPECT_EQ(copy.used(), ledger.used());
}

TEST(LedgerTest, RefusesWhatCannotBe) {
  EXPECT_THROW(Ledger(-1), std::invalid_argument);
  Ledger ledger(10);
  for (const Interval& wrong : {Interval{-1, 2}, Interval{5, 4}, Interval{9, 11}}) {
    EXPECT_THROW(ledger.stage({.positions = wrong}), InvariantError);
  }
  EXPECT_THROW(ledger.merge(Ledger(11), 0), InvariantError);
  enter(ledger, 2, 4);
  for (const std::vector<double>& wrong : std::vector<std::vector<double>>{{2, 4, 3, 5}, {2}, {-1, 2}, {9, 11}}) {
    State state = save_state(ledger);
    state.numbers.at("used") = wrong;
    EXPECT_THROW(restore_state(ledger, state), std::invalid_argument);
  }
  State state = save_state(ledger);
  state.numbers.at("used").clear();
  state.numbers.at("size") = {-1};
  EXPECT_THROW(restore_state(ledger, state), std::invalid_argument);
}

}  // namespace
}  // namespace isochron
