#include "isochron/core/sample/claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron {
namespace {

TEST(ClaimPoolTest, GivesPositionsInOrderUpToTheEnd) {
  ClaimPool pool(5);
  EXPECT_TRUE(pool.exhausted());
  pool.open(12);
  EXPECT_EQ(pool.claim(0, 4), (Interval{5, 9}));
  EXPECT_EQ(pool.claim(1, 4), (Interval{9, 12}));
  EXPECT_TRUE(pool.exhausted());
  EXPECT_EQ(pool.claim(2, 4).size(), 0);
  EXPECT_FALSE(pool.done());
  EXPECT_EQ(pool.finish(0), (Interval{5, 9}));
  EXPECT_EQ(pool.finish(1), (Interval{9, 12}));
  EXPECT_TRUE(pool.done());
}

TEST(ClaimPoolTest, GivesWhatWasGivenBackFirst) {
  ClaimPool pool;
  pool.open(100);
  (void)pool.claim(0, 10);
  (void)pool.claim(1, 10);
  pool.give_back(0);
  pool.give_back(0);  // holds nothing any more
  EXPECT_EQ(pool.left(), 90);
  EXPECT_EQ(pool.claim(2, 4), (Interval{0, 4}));
  EXPECT_EQ(pool.claim(3, 20), (Interval{4, 10}));
  EXPECT_EQ(pool.claim(4, 20), (Interval{20, 40}));
}

TEST(ClaimPoolTest, ClosedItStillGivesWhatComesBack) {
  ClaimPool pool;
  pool.open(100);
  (void)pool.claim(0, 10);
  pool.close();
  EXPECT_EQ(pool.claim(1, 10).size(), 0);
  pool.give_back(0);
  EXPECT_EQ(pool.claim(1, 10), (Interval{0, 10}));
  EXPECT_EQ(pool.next(), 10);
}

TEST(ClaimPoolTest, RefusesWhatCannotBe) {
  ClaimPool pool;
  pool.open(10);
  (void)pool.claim(0, 4);
  EXPECT_THROW((void)pool.claim(0, 4), InvariantError);
  EXPECT_THROW((void)pool.claim(1, 0), InvariantError);
  EXPECT_THROW((void)pool.finish(1), InvariantError);
  EXPECT_THROW(pool.open(9), InvariantError);
  EXPECT_THROW(pool.give_back(Interval{4, 6}), InvariantError);
}

}  // namespace
}  // namespace isochron
