#include "isochron/view/columns.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace isochron::view {
namespace {

TEST(ColumnsTest, EncodesTheExamplesOfRfc4648) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
}

TEST(ColumnsTest, WritesLittleEndianNumbers) {
  // 1.0f is 0x3F800000, so 00 00 80 3F; 1.0 is 0x3FF0000000000000.
  EXPECT_EQ(float_column(std::vector{1.0}), "\"" + base64(std::string("\x00\x00\x80\x3F", 4)) + "\"");
  EXPECT_EQ(double_column(std::vector{1.0}), "\"" + base64(std::string("\x00\x00\x00\x00\x00\x00\xF0\x3F", 8)) + "\"");
}

TEST(ColumnsTest, TurnsWhatDoesNotFitIntoNotANumber) {
  const std::string nothing = float_column(std::vector{std::numeric_limits<double>::quiet_NaN()});
  EXPECT_EQ(nothing, "\"" + base64(std::string("\x00\x00\xC0\x7F", 4)) + "\"");
  EXPECT_EQ(float_column(std::vector{std::numeric_limits<double>::infinity()}), nothing);
  EXPECT_EQ(float_column(std::vector{1e300}), nothing);
  EXPECT_EQ(float_column(std::vector{-1e300}), nothing);
  EXPECT_NE(double_column(std::vector{1e300}), double_column(std::vector{-1e300}));
}

}  // namespace
}  // namespace isochron::view
