#include "isochron/core/trace/chain.h"

#include <string>

#include <gtest/gtest.h>

namespace isochron {
namespace {

TEST(ChainTest, PutsTheLinkIntoTheLastFieldAndTakesItOut) {
  const std::string text = with_link(R"({"a":1})", 0xABCU);
  EXPECT_EQ(text, R"({"a":1,"chain":"0000000000000abc"})");
  const auto parts = split_link(text);
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->line, R"({"a":1})");
  EXPECT_EQ(parts->link, 0xABCU);
  EXPECT_EQ(split_link(with_link(R"({"a":1})", ~std::uint64_t{0}))->link, ~std::uint64_t{0});
}

TEST(ChainTest, TakesNothingElseForALink) {
  for (const char* const text :
       {"",
        "{}",
        R"({"a":1})",
        R"({"chain":"0000000000000abc"})",         // nothing before it
        R"({"a":1,"chain":"0000000000000ABC"})",   // capitals
        R"({"a":1,"chain":"000000000000abc"})",    // a digit short
        R"({"a":1,"chain":"0000000000000abc"} )",  // something after it
        R"({"a":1,"chain":"0000000000000abc","b":2})"}) {
    EXPECT_FALSE(split_link(text)) << text;
  }
}

TEST(ChainTest, SeesEveryChangeOfOneByteAndOfWhatCameBefore) {
  const std::string line = R"({"type":"step","step":17})";
  const std::uint64_t link = next_link(kFirstLink, line);
  for (std::size_t i = 0; i < line.size(); ++i) {
    std::string changed = line;
    changed[i] ^= 1;
    EXPECT_NE(next_link(kFirstLink, changed), link) << i;
  }
  EXPECT_NE(next_link(kFirstLink, line + ' '), link);
  EXPECT_NE(next_link(kFirstLink, line + '\0'), link);
  EXPECT_NE(next_link(kFirstLink + 1, line), link);
}

// Logs outlive the program that wrote them: the same bytes must keep their links.
TEST(ChainTest, IsTheSameEverywhere) {
  EXPECT_EQ(next_link(kFirstLink, R"({"type":"run"})"), 0xa61c'ba49'4f2f'85fdU);
}

}  // namespace
}  // namespace isochron
