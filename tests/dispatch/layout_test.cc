#include "isochron/core/dispatch/layout.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

using ::testing::ElementsAre;

TEST(LayoutTest, LaysParametersOfOneGroupAndTypeEndToEnd) {
  const std::vector<ParameterSize> parameters{
      {.group = 0, .type = "f8", .width = 8, .elements = 10},
      {.group = 0, .type = "f4", .width = 4, .elements = 7},
      {.group = 0, .type = "f8", .width = 8, .elements = 1},
      {.group = 1, .type = "f8", .width = 8, .elements = 3}};
  const ParameterLayout layout = lay_out(parameters, 3, kWholeShares);
  ASSERT_EQ(layout.strips.size(), 3U);
  EXPECT_EQ(layout.strips[0].elements, 11);
  EXPECT_EQ(layout.strips[1].elements, 7);
  EXPECT_EQ(layout.strips[2].group, 1U);
  EXPECT_EQ(layout.slots[2].strip, 0U);
  EXPECT_EQ(layout.slots[2].first, 10);
  EXPECT_EQ(layout.slots[2].last, 11);
  // 88 + 28 + 24 = 140 bytes: cut at 46 and 93, which are element 5 of the first strip and 1 of the second.
  EXPECT_EQ(layout.server_bytes(0), 40);
  EXPECT_EQ(layout.server_bytes(1), 48 + 4);
  EXPECT_EQ(layout.server_bytes(2), 24 + 24);
  EXPECT_THAT(layout.chunks_on(1), ElementsAre(1, 2));
  EXPECT_THAT(layout.chunks_of(0), ElementsAre(0, 1));
  EXPECT_THAT(layout.chunks_of(2), ElementsAre(1));
}

TEST(LayoutTest, EveryNumberLiesInOneChunkAndSharesAreEqual) {
  Random random({5});
  for (int trial = 0; trial < 2'000; ++trial) {
    std::vector<ParameterSize> parameters(1 + random.below(6));
    for (ParameterSize& parameter : parameters) {
      parameter.width = random.below(2) == 0 ? 4 : 2;
      parameter.type = std::to_string(parameter.width);
      parameter.group = random.below(2);
      parameter.elements = static_cast<std::int64_t>(random.below(40));
    }
    const int servers = 1 + static_cast<int>(random.below(5));
    const std::int64_t most = random.below(2) == 0 ? kWholeShares : static_cast<std::int64_t>(1 + random.below(30));
    const ParameterLayout layout = lay_out(parameters, servers, most);
    std::vector<std::int64_t> reached(layout.strips.size(), 0);
    std::int64_t total = 0;
    for (std::size_t i = 0; i < layout.chunks.size(); ++i) {
      const Chunk& chunk = layout.chunks[i];
      EXPECT_EQ(chunk.first, reached[chunk.strip]) << "a gap, or two chunks with the same number";
      EXPECT_GT(chunk.size(), 0);
      EXPECT_TRUE(layout.chunk_bytes(i) <= most || chunk.size() == 1);
      EXPECT_TRUE(i == 0 || layout.chunks[i - 1].server <= chunk.server);
      reached[chunk.strip] = chunk.last;
      total += layout.chunk_bytes(i);
    }
    for (std::size_t strip = 0; strip < layout.strips.size(); ++strip) {
      EXPECT_EQ(reached[strip], layout.strips[strip].elements);
    }
    for (int server = 0; server < servers; ++server) {
      // Rounded to whole numbers at both ends.
      EXPECT_NEAR(static_cast<double>(layout.server_bytes(server)), static_cast<double>(total) / servers, 5.0);
    }
    ASSERT_FALSE(HasFailure()) << "trial " << trial;
  }
}

}  // namespace
}  // namespace isochron
