#include "isochron/serve/access.h"

#include <gtest/gtest.h>

namespace isochron::serve {
namespace {

TEST(AccessTest, KnowsTheLoopbackAddress) {
  for (const char* const host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* const host : {"", "0.0.0.0", "10.0.0.1", "127.0.0.1.evil.org", "127.evil.org", "::", "127.1"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(AccessTest, KnowsTheNamesOfTheLoopbackAddress) {
  for (const char* const header : {"localhost", "localhost:8080", "127.0.0.1:80", "[::1]:8080", "[::1]"}) {
    EXPECT_TRUE(names_loopback(header)) << header;
  }
  for (const char* const header : {"", "evil.org", "evil.org:8080", "localhost.evil.org", "[::2]", "[::1"}) {
    EXPECT_FALSE(names_loopback(header)) << header;
  }
}

TEST(AccessTest, ComparesTokens) {
  EXPECT_TRUE(same_token("abc", "abc"));
  EXPECT_FALSE(same_token("abd", "abc"));
  EXPECT_FALSE(same_token("ab", "abc"));
  EXPECT_FALSE(same_token("abcd", "abc"));
  EXPECT_FALSE(same_token("", "abc"));
}

}  // namespace
}  // namespace isochron::serve
