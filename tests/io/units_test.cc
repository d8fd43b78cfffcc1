#include "isochron/io/units.h"

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace isochron::io {
namespace {

TEST(UnitsTest, ReadsRatesInBitsAndBytes) {
  EXPECT_EQ(parse_rate("100mbit"), 12.5e6);
  EXPECT_EQ(parse_rate("10gbit"), 1.25e9);
  EXPECT_EQ(parse_rate("8bit"), 1.0);
  EXPECT_EQ(parse_rate("1.5kbit"), 187.5);
  EXPECT_EQ(parse_rate("1gbyte"), 1e9);
  EXPECT_EQ(parse_rate("3byte"), 3.0);
}

TEST(UnitsTest, ReadsDurationsToTheNearestDouble) {
  EXPECT_EQ(parse_duration("2ms"), 0.002);
  EXPECT_EQ(parse_duration("500us"), 0.0005);
  EXPECT_EQ(parse_duration("1.5s"), 1.5);
  EXPECT_EQ(parse_duration("0ns"), 0.0);
}

TEST(UnitsTest, ReadsSizes) {
  EXPECT_EQ(parse_size("25mbyte"), 25e6);
  EXPECT_EQ(parse_size("0"), 0.0);
  EXPECT_EQ(parse_size("1e3"), 1000.0);
}

TEST(UnitsTest, RefusesEverythingElseByName) {
  for (const char* const text :
       {"",
        "mbit",
        "100",
        "100 mbit",
        "100Mbit",
        "-1mbit",
        "0mbit",
        "nanmbit",
        "infmbit",
        "1e400gbit",
        "1e-400bit",
        "1e308gbit",
        "1mbitx",
        "0x10mbit"}) {
    EXPECT_THROW((void)parse_rate(text), std::invalid_argument) << text;
  }
  for (const char* const text : {"", "2", "ms", "-1ms", "2 ms", "infs", "nans", "2h"}) {
    EXPECT_THROW((void)parse_duration(text), std::invalid_argument) << text;
  }
  for (const char* const text : {"", "byte", "-1", "inf", "nan", "1e308gbyte", "5kb"}) {
    EXPECT_THROW((void)parse_size(text), std::invalid_argument) << text;
  }
  try {
    (void)parse_duration("2 hours");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "'2 hours'; permitted: a number with s, ms, us or ns, such as 2ms");
  }
}

}  // namespace
}  // namespace isochron::io
