#include "isochron/core/trace/event.h"

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "isochron/core/trace/run_log.h"

namespace isochron {
namespace {

TEST(EventTest, TheTableIsInTheOrderOfTheEnumerationAndLeadsBothWays) {
  for (std::size_t i = 0; i < kEvents.size(); ++i) {
    EXPECT_EQ(kEvents[i].event, static_cast<Event>(i));
    EXPECT_EQ(to_string(kEvents[i].event), kEvents[i].name);
    EXPECT_EQ(find_event(kEvents[i].name), &kEvents[i]);
  }
  EXPECT_EQ(find_event("of a later version"), nullptr);
}

TEST(EventTest, ARecordIsOfItsEventAndSetsTheStepIfThatDoes) {
  EXPECT_TRUE(is(EventRecord{.event = "join"}, Event::kJoin));
  EXPECT_FALSE(is(EventRecord{.event = "death"}, Event::kJoin));
  EXPECT_TRUE(sets_step(EventRecord{.event = "rollback"}));
  EXPECT_FALSE(sets_step(EventRecord{.event = "death"}));
  EXPECT_FALSE(sets_step(EventRecord{.event = "of a later version"}));
}

TEST(EventTest, ThePageHasALetterForEveryEvent) {
  std::ifstream file(ISOCHRON_SOURCE_DIR "/web/charts.js");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::size_t first = page.find("const kGlyphs");
  ASSERT_NE(first, std::string::npos);
  const std::string glyphs = page.substr(first, page.find("}));", first) - first);
  for (const EventKind& kind : kEvents) {
    const std::string name(kind.name);
    EXPECT_TRUE(
        glyphs.find(" " + name + ": \"") != std::string::npos ||
        glyphs.find("\"" + name + "\": \"") != std::string::npos)
        << name;
  }
}

}  // namespace
}  // namespace isochron
