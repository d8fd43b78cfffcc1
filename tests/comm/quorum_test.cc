#include <initializer_list>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/comm/roll_call.h"

namespace isochron {
namespace {

std::vector<RollCall::Missing> silent(std::initializer_list<int> ranks) {
  std::vector<RollCall::Missing> missing;
  for (const int rank : ranks) {
    missing.push_back({.peer = {.rank = rank, .host = "", .process = 0}, .started = {}});
  }
  return missing;
}

TEST(QuorumTest, TheLargerSideMayEvictTheOther) {
  EXPECT_FALSE(is_outvoted(silent({2}), {}, 3));
  EXPECT_FALSE(is_outvoted(silent({0}), {}, 3)) << "the first rank is no more than others";
  EXPECT_TRUE(is_outvoted(silent({0, 1}), {}, 3));
  EXPECT_TRUE(is_outvoted(silent({1, 2}), {}, 3));
}

TEST(QuorumTest, OfEqualHalvesTheOneWithTheFirstRankMay) {
  EXPECT_FALSE(is_outvoted(silent({1}), {}, 2));
  EXPECT_TRUE(is_outvoted(silent({0}), {}, 2));
  EXPECT_FALSE(is_outvoted(silent({1, 3}), {}, 4));
  EXPECT_TRUE(is_outvoted(silent({0, 3}), {}, 4));
}

TEST(QuorumTest, TheDeadBelongToNoSide) {
  // Rank 1 comes before rank 2.
  EXPECT_FALSE(is_outvoted(silent({0, 2}), {0}, 3));
  EXPECT_TRUE(is_outvoted(silent({0, 1}), {0}, 3));
  EXPECT_FALSE(is_outvoted(silent({0, 1}), {0, 1}, 3)) << "alone with the dead";
}

TEST(QuorumTest, WhoIsMerelyBehindHasAVoice) {
  std::vector<RollCall::Missing> missing = silent({0, 1});
  missing[0].started = 7;
  EXPECT_FALSE(is_outvoted(missing, {}, 3));
}

}  // namespace
}  // namespace isochron
