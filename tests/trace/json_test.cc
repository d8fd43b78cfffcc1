#include "isochron/core/trace/json.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace isochron {
namespace {

TEST(JsonTest, EscapesQuotesBackslashesAndControlCharacters) {
  EXPECT_EQ(json_string("a\"b\\c\nd\x01\x1f"), "\"a\\\"b\\\\c\\nd\\u0001\\u001f\"");
  EXPECT_EQ(json_string("naïve ✓ 😀"), "\"naïve ✓ 😀\"");
}

TEST(JsonTest, ReplacesEveryByteThatIsNotUtf8) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(json_string("a\xFFz"), "\"a" + mark + "z\"");
  EXPECT_EQ(json_string("\xC0\xAF"), '"' + mark + mark + '"');                        // overlong '/'
  EXPECT_EQ(json_string("\xED\xA0\x80"), '"' + mark + mark + mark + '"');             // a surrogate
  EXPECT_EQ(json_string("\xF4\x90\x80\x80"), '"' + mark + mark + mark + mark + '"');  // beyond U+10FFFF
  EXPECT_EQ(json_string("\xE2\x9C"), '"' + mark + mark + '"');                        // cut short
  EXPECT_EQ(json_string("\xF4\x8F\xBF\xBF"), "\"\xF4\x8F\xBF\xBF\"");                 // U+10FFFF itself
}

TEST(JsonTest, WritesTheShortestNumberThatReadsBackTheSame) {
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(3.0), "3");
  for (const double value : {0.1 + 0.2, 1e300, -5e-324, std::numeric_limits<double>::max(), 1.0 / 3.0}) {
    EXPECT_EQ(std::strtod(json_number(value).c_str(), nullptr), value);
  }
}

TEST(JsonTest, HasNoNumberForWhatIsNotFinite) {
  EXPECT_EQ(json_number(std::nan("")), "null");
  EXPECT_EQ(json_number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(json_number(-std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonTest, BuildsObjectsAndArraysInOrder) {
  EXPECT_EQ(JsonObject().str(), "{}");
  EXPECT_EQ(
      JsonObject().text("b", "x").integer("a", 7).flag("c", true).number("d", 0.5).raw("e", "[]").str(),
      R"({"b":"x","a":7,"c":true,"d":0.5,"e":[]})");
  EXPECT_EQ(json_array(std::vector<double>{}, json_number), "[]");
  EXPECT_EQ(json_array(std::vector<double>{1.0, 2.5}, json_number), "[1,2.5]");
}

}  // namespace
}  // namespace isochron
