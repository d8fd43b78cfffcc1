#include "isochron/view/page_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/view/records.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace isochron::view {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string from_base64(const std::string& text) {
  static const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned group = 0;
  unsigned bits = 0;
  for (const char c : text.substr(0, text.find('='))) {
    group = group << 6U | static_cast<unsigned>(kDigits.find(c));
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>(static_cast<unsigned char>(group >> bits));
    }
  }
  return bytes;
}

/// As the page reads them.
template <class Number>
std::vector<Number> numbers(const json& column) {
  const std::string bytes = from_base64(column.get<std::string>());
  std::vector<Number> values(bytes.size() / sizeof(Number));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Number));
  return values;
}

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

TEST(PageDataTest, AddsUpWorkPaddingAndWaitingWithinSteps) {
  RunView view(header_of({"fast", "slow"}));
  for (const std::int64_t number : {0, 1}) {
    StepRecord step = step_of(number, static_cast<double>(number), {60, 40}, {1.0, 1.0});
    step.workers[1].work = 400.0;
    step.workers[1].padding = 125.0;
    step.workers[1].inner_wait_seconds = 0.25;
    view.add(step);
  }
  const json workers = json::parse(to_page_json(view, "mine")).at("workers");
  EXPECT_EQ(workers.at(0).at("work"), 0.0);
  EXPECT_EQ(workers.at(1).at("work"), 800.0);
  EXPECT_EQ(workers.at(1).at("padding"), 250.0);
  EXPECT_EQ(workers.at(1).at("inner_wait"), 0.5);
}

TEST(PageDataTest, GivesThePageEveryStep) {
  const json run = json::parse(to_page_json(view_of(3), "mine"));
  EXPECT_EQ(run.at("name"), "mine");
  EXPECT_EQ(run.at("policy"), "isochron");
  EXPECT_EQ(run.at("workers").at(1).at("name"), "slow");
  const json& timeline = run.at("timeline");
  EXPECT_EQ(timeline.at("bins"), 3);
  EXPECT_EQ(timeline.at("exact"), true);
  EXPECT_EQ(numbers<double>(timeline.at("first_step")), (Doubles{0, 1, 2}));
  EXPECT_EQ(numbers<double>(timeline.at("start")), (Doubles{0, 1, 2}));
  EXPECT_EQ(numbers<float>(timeline.at("balance").at("mean")), (Floats{0.75F, 0.75F, 0.75F}));
  EXPECT_FALSE(timeline.at("balance").contains("low"));  // it is the mean
  const json& cells = timeline.at("cells");
  EXPECT_EQ(numbers<float>(cells.at("batch").at("mean")), (Floats{60, 60, 60, 40, 40, 40}));
  EXPECT_EQ(numbers<float>(cells.at("wait")), (Floats{0.5F, 0.5F, 0.5F, 0, 0, 0}));
  EXPECT_FALSE(cells.contains("offset"));  // all start with the step
  EXPECT_EQ(run.at("curves").size(), 2U);
}

TEST(PageDataTest, SaysWhetherWorkersAreInStep) {
  EXPECT_EQ(json::parse(to_page_json(view_of(3), "x")).at("asynchronous"), false);
  RunView view(header_of({"a", "b"}));
  view.add(update_of(0, 0.0, 1.0));
  EXPECT_EQ(json::parse(to_page_json(view, "x")).at("asynchronous"), true);
}

TEST(PageDataTest, GivesSmallestAndLargestWhereStepsWereSummedUp) {
  RunView view(header_of({"a", "b"}), 256);  // 128 bins
  for (std::int64_t step = 0; step < 4000; ++step) {
    view.add(step_of(step, static_cast<double>(step), {50, 50}, {step == 2000 ? 9.0 : 1.0, 1.0}));
  }
  const json timeline = json::parse(to_page_json(view, "x")).at("timeline");
  EXPECT_EQ(timeline.at("exact"), false);
  EXPECT_LE(timeline.at("bins"), 128);
  const Floats high = numbers<float>(timeline.at("cells").at("compute").at("high"));
  EXPECT_EQ(*std::ranges::max_element(high), 9.0F);
  const Floats count = numbers<float>(timeline.at("count"));
  EXPECT_EQ(std::accumulate(count.begin(), count.end(), 0.0F), 4000.0F);
}

TEST(PageDataTest, SaysWhereWorkersWereNotThere) {
  RunView view(header_of({"a"}));
  view.add(step_of(0, 0.0, {100}, {1.0}));
  view.add(step_of(1, 1.0, {50, 50}, {1.0, 1.0}));
  const json cells = json::parse(to_page_json(view, "x")).at("timeline").at("cells");
  const Floats batch = numbers<float>(cells.at("batch").at("mean"));
  ASSERT_EQ(batch.size(), 4U);
  EXPECT_TRUE(std::isnan(batch[2]));
  EXPECT_EQ(batch[3], 50.0F);
}

TEST(PageDataTest, ContinuesWhereAPageStopped) {
  RunView view = view_of(10);
  const Since since = now(view);
  view.add(step_of(10, 10.0, {60, 40}, {0.5, 1.0}));
  ASSERT_TRUE(can_continue(view, since));
  const json update = json::parse(to_page_json(view, "x", since));
  EXPECT_EQ(numbers<double>(update.at("timeline").at("first_step")), Doubles{10});
  EXPECT_EQ(update.at("timeline").at("records"), 11);
  EXPECT_FALSE(update.contains("events"));
  view.add(EventRecord{.step = 11, .event = "stall", .worker = 0});
  EXPECT_TRUE(json::parse(to_page_json(view, "x", since)).contains("events"));
}

TEST(PageDataTest, TellsAPageThatWasLeftBehindToBeginAnew) {
  RunView view = view_of(100, 256);
  for (std::int64_t step = 100; step < 5000; ++step) {
    view.add(step_of(step, static_cast<double>(step), {60, 40}, {0.5, 1.0}));
  }
  EXPECT_FALSE(can_continue(view, {.records = 2001}));
  EXPECT_TRUE(can_continue(view, now(view)));
  EXPECT_FALSE(can_continue(view, {.records = 9999}));
}

TEST(PageDataTest, KeepsTextFromEndingTheScript) {
  RunHeader header = header_of({"</script><script>alert(1)</script>", "<!-- \xff"});
  header.policy = "</SCRIPT>";
  RunView view(header);
  view.add(EventRecord{.step = 0, .event = "<img src=x onerror=alert(1)>", .worker = 0, .words = "<!--"});
  const std::string text = to_page_json(view, "</script>");
  EXPECT_THAT(text, Not(HasSubstr("<")));
  EXPECT_EQ(json::parse(text).at("workers").at(0).at("name"), "</script><script>alert(1)</script>");
}

TEST(PageDataTest, HasTheKeysThatEveryCommandUses) {
  const json summary = json::parse(to_json(view_of(5).summary(), header_of({"a"})));
  EXPECT_EQ(summary.at("policy"), "isochron");
  EXPECT_EQ(summary.at("samples_per_second"), 100.0);
  EXPECT_EQ(summary.at("step_seconds").at("p99"), 1.0);
  EXPECT_TRUE(summary.at("loss").is_null());
}

}  // namespace
}  // namespace isochron::view
