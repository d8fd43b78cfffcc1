#include "isochron/view/page.h"

#include <regex>
#include <string>

#include "tests/view/records.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::view {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(PageTest, HoldsEverythingItShows) {
  const RunView view = view_of(5);
  const std::string html = page({{.name = "isochron", .view = &view}});
  EXPECT_THAT(html, StartsWith("<!doctype html>"));
  EXPECT_THAT(html, HasSubstr("\"headline\":\"isochron does 100.0 samples per second"));
  EXPECT_THAT(html, AllOf(HasSubstr("MIT License"), HasSubstr("uPlot")));
  EXPECT_THAT(html, Not(HasSubstr(" src=")));
  EXPECT_THAT(html, AllOf(HasSubstr("default-src 'none'"), HasSubstr("connect-src 'none'")));
  EXPECT_THAT(page({{.name = "isochron", .view = &view}}, {.live = true}), HasSubstr("connect-src 'self'"));
}

TEST(PageTest, RunsOnlyItsOwnScripts) {
  RunHeader header = header_of({"</script><script>alert(1)</script>"});
  header.cluster = "<b>";
  const RunView view(header);
  const std::string html = page({{.name = "<title>", .view = &view}});
  std::smatch match;
  ASSERT_TRUE(std::regex_search(html, match, std::regex("script-src 'nonce-([0-9a-f]{32})'")));
  std::size_t scripts = 0;
  for (std::size_t at = html.find("<script"); at != std::string::npos; at = html.find("<script", at + 1)) {
    EXPECT_EQ(
        html.substr(at, html.find('>', at) - at).find("nonce=\"" + match[1].str() + "\"") == std::string::npos, false);
    ++scripts;
  }
  EXPECT_EQ(scripts, 8U);  // the data, uPlot and six of ours
  EXPECT_THAT(html, HasSubstr("<title>Isochron: &lt;title>"));
  EXPECT_THAT(page({{.name = "x", .view = &view}}), Not(HasSubstr(match[1].str())));
}

}  // namespace
}  // namespace isochron::view
