#include "isochron/cli/table.h"

#include <limits>

#include <gtest/gtest.h>

namespace isochron::cli {
namespace {

TEST(TableTest, AlignsTheFirstColumnLeftAndTheOthersRight) {
  EXPECT_EQ(
      format_table({{"policy", "p50"}, {"a", "1.0"}, {"longer name", "10000.0"}}),
      "policy           p50\n"
      "a                1.0\n"
      "longer name  10000.0\n");
}

TEST(TableTest, WritesNumbersWithoutALocale) {
  EXPECT_EQ(fixed(1234.567, 1), "1234.6");
  EXPECT_EQ(fixed(0.0, 3), "0.000");
  EXPECT_EQ(fixed(std::numeric_limits<double>::infinity(), 1), "inf");
  EXPECT_EQ(fixed(std::numeric_limits<double>::max(), 1).size(), 311U);
}

TEST(TableTest, BreaksLinesBetweenWords) {
  EXPECT_EQ(wrapped("aa bb cc", 5, 2), "aa bb\n  cc");
  EXPECT_EQ(wrapped("aaaaaaaa bb", 5, 0), "aaaaaaaa\nbb");
  EXPECT_EQ(wrapped("", 5, 2), "");
}

}  // namespace
}  // namespace isochron::cli
