#include "isochron/cli/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

sim::Result result(const std::string& policy, double samples_per_second, double over_oracle) {
  sim::Result made;
  made.policy = policy;
  made.steps = 100;
  made.samples_per_second = samples_per_second;
  made.time_over_oracle = over_oracle;
  return made;
}

TEST(ResultsTest, SaysWhatWasGainedOverUniform) {
  EXPECT_EQ(
      gain_sentence({result("uniform", 100, 2.97), result("dlb", 500, 1.0), result("isochron:risk=off", 297, 1.0004)}),
      "isochron:risk=off does 2.97x the samples per second of uniform, 0.0 % from the oracle.");
}

TEST(ResultsTest, ComparesTheFastestWithTheSlowestWhereTheTwoAreMissing) {
  EXPECT_EQ(
      gain_sentence({result("dlb", 100, 2.0), result("lbb", 150, 0.99)}),
      "lbb does 1.50x the samples per second of dlb, 1.0 % ahead of the oracle, which knows all speeds but not "
      "the noise.");
}

TEST(ResultsTest, SpeaksOfASinglePolicyByItself) {
  EXPECT_EQ(
      gain_sentence({result("uniform", 100, 1.5)}), "uniform does 100.0 samples per second, 50.0 % from the oracle.");
}

TEST(ResultsTest, SaysNeverWhereTheBalanceWasNotReached) {
  sim::Result never = result("uniform", 1, 1);
  never.steps_to_balance = never.steps;
  EXPECT_THAT(results_table({never}, Sync::kBsp), HasSubstr("never"));
  EXPECT_THAT(results_table({result("uniform", 1, 1)}, Sync::kBsp), Not(HasSubstr("never")));
}

TEST(ResultsTest, ReportsStalenessOnlyWhereItExists) {
  EXPECT_FALSE(to_json(result("a", 1, 1), Sync::kBsp).contains("staleness"));
  EXPECT_TRUE(to_json(result("a", 1, 1), Sync::kSsp).contains("staleness"));
  EXPECT_THAT(results_table({result("a", 1, 1)}, Sync::kAsp), HasSubstr("mean staleness"));
}

}  // namespace
}  // namespace isochron::cli
