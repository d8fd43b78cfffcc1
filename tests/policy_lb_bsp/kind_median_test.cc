#include "isochron/baselines/kind_median.h"

#include <gtest/gtest.h>

namespace isochron {
namespace {

Roster roster_of(const std::vector<std::string>& kinds) {
  Roster roster;
  for (const std::string& kind : kinds) {
    roster.workers.push_back({.id = roster.workers.size(), .kind = kind});
  }
  return roster;
}

TEST(FillByKindTest, TakesTheMedianOfTheSameKind) {
  const Roster roster = roster_of({"cpu", "gpu", "cpu", "cpu", "gpu", "cpu"});
  const std::vector<double> expected{3.0, 90.0, 1.0, 2.0, 90.0, 2.0};
  EXPECT_EQ(fill_by_kind(roster, {3.0, 90.0, 1.0, 2.0, 0.0, 0.0}), expected);
}

TEST(FillByKindTest, TakesTheMedianOfAllForAKindThatIsUnknown) {
  const std::vector<double> expected{3.0, 5.0, 4.0, 4.0};
  EXPECT_EQ(fill_by_kind(roster_of({"cpu", "cpu", "cpu", "tpu"}), {3.0, 5.0, 4.0, 0.0}), expected);
}

TEST(FillByKindTest, TreatsAllAlikeIfNothingIsKnown) {
  EXPECT_EQ(fill_by_kind(roster_of({"cpu", "gpu"}), {0.0, 0.0}), (std::vector<double>{1.0, 1.0}));
}

}  // namespace
}  // namespace isochron
