#include "isochron/io/lengths_file.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::io {
namespace {

class LengthsFileTest : public testing::Test {
 protected:
  std::filesystem::path written(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  std::string refusal_of_file(const std::string& text) {
    try {
      (void)read_lengths(written(text));
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  }
  void TearDown() override { std::filesystem::remove(path_); }

 private:
  std::filesystem::path path_ = own_path("lengths.txt");
};

TEST_F(LengthsFileTest, HasOneNumberALine) {
  EXPECT_THAT(read_lengths(written("12\n\n7.5 \r\n0")), testing::ElementsAre(12.0, 7.5, 0.0));
}

TEST_F(LengthsFileTest, AnythingElseIsRefusedWithItsLine) {
  EXPECT_THAT(refusal_of_file("3\nmany\n"), testing::HasSubstr(":2: the length is 'many'; permitted: a number"));
  EXPECT_THAT(refusal_of_file("-1\n"), testing::HasSubstr(":1: the length is '-1'"));
  EXPECT_THAT(refusal_of_file("nan\n"), testing::HasSubstr(":1: the length is 'nan'"));
  EXPECT_THAT(refusal_of_file("1 2\n"), testing::HasSubstr(":1: the length is '1 2'"));
  EXPECT_THAT(refusal_of_file("\n \n"), testing::HasSubstr("permitted: one number a line"));
  EXPECT_THROW((void)read_lengths("/nowhere/at/all"), Error);
}

}  // namespace
}  // namespace isochron::io
