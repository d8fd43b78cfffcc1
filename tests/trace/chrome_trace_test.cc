#include "isochron/core/trace/chrome_trace.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace isochron {
namespace {

using nlohmann::json;

RunHeader two_workers() {
  return {
      .program = "simulate",
      .policy = "isochron",
      .cluster = "pair",
      .workers = {{.id = 0, .name = "fast"}, {.id = 1, .name = "slow \"1\""}}};
}

/// Worker 0 computes 96 samples in 2 s and waits 1 s; worker 1 computes 32 in 3 s; then both exchange for 0.5 s.
StepRecord uneven_step(std::int64_t step, double start, bool changed) {
  return {
      .step = step,
      .start_seconds = start,
      .seconds = 3.5,
      .workers =
          {{.id = 0,
            .batch = 96,
            .start_seconds = start,
            .compute_seconds = 2.0,
            .wait_seconds = 1.0,
            .exchange_seconds = 0.5},
           {.id = 1,
            .batch = 32,
            .start_seconds = start,
            .compute_seconds = 3.0,
            .wait_seconds = 0.0,
            .exchange_seconds = 0.5}},
      .changed = changed,
      .reason = Reason::kSpeedChanged,
      .words = "slow got slower"};
}

std::vector<json> events_of(const std::string& document, const std::string& phase) {
  const json trace = json::parse(document);
  std::vector<json> found;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) {
      found.push_back(event);
    }
  }
  return found;
}

/// The whole document. Calls within one expression would come in any order.
template <class... Records>
std::string document_of(const Records&... records) {
  ChromeTrace trace(two_workers());
  std::string text = trace.begin();
  ((text += trace.add(records)), ...);
  return text + trace.end();
}

TEST(ChromeTraceTest, LaysTheSpansOfAWorkerEndToEnd) {
  const std::string document = document_of(uneven_step(0, 1.0, false));
  const std::vector<json> spans = events_of(document, "X");
  ASSERT_EQ(spans.size(), 5U);  // worker 1 does not wait, so it has no wait span
  EXPECT_EQ(spans[0].at("name"), "compute");
  EXPECT_EQ(spans[0].at("ts"), 1e6);
  EXPECT_EQ(spans[0].at("dur"), 2e6);
  EXPECT_EQ(spans[1].at("name"), "wait");
  EXPECT_EQ(spans[1].at("ts"), 3e6);
  EXPECT_EQ(spans[2].at("name"), "exchange");
  EXPECT_EQ(spans[2].at("ts"), 4e6);
  EXPECT_EQ(spans[4].at("ts"), 4e6);
  EXPECT_EQ(spans[0].at("tid"), spans[2].at("tid"));
  EXPECT_NE(spans[0].at("tid"), spans[3].at("tid"));
  EXPECT_EQ(spans[3].at("args").at("batch"), 32);
}

TEST(ChromeTraceTest, LaysTheWaitingOfAnUpdateBeforeItsStart) {
  UpdateRecord update{.seconds = 2.5, .staleness = 1};
  update.worker = {.start_seconds = 3.0, .compute_seconds = 2.0, .wait_seconds = 1.0, .exchange_seconds = 0.5};
  std::vector<std::pair<std::string, double>> spans;
  for (const json& span : events_of(document_of(update), "X")) {
    spans.emplace_back(span.at("name"), span.at("ts"));
  }
  EXPECT_EQ(spans, (std::vector<std::pair<std::string, double>>{{"compute", 3e6}, {"wait", 2e6}, {"exchange", 5e6}}));
}

TEST(ChromeTraceTest, NamesEveryTrack) {
  const std::vector<json> names = events_of(document_of(), "M");
  ASSERT_EQ(names.size(), 4U);
  EXPECT_EQ(names[0].at("args").at("name"), "simulate isochron on pair");
  EXPECT_EQ(names[3].at("args").at("name"), "slow \"1\"");
}

TEST(ChromeTraceTest, MarksAChangeOfTheSplitWithItsReason) {
  const std::string document = document_of(uneven_step(0, 0.0, false), uneven_step(1, 3.5, true));
  const std::vector<json> instants = events_of(document, "i");
  ASSERT_EQ(instants.size(), 1U);
  EXPECT_EQ(instants[0].at("name"), std::string(to_string(Reason::kSpeedChanged)));
  EXPECT_EQ(instants[0].at("ts"), 3.5e6);
  EXPECT_EQ(instants[0].at("args").at("words"), "slow got slower");
}

TEST(ChromeTraceTest, CountsABatchSizeOnlyWhenItChanges) {
  StepRecord moved = uneven_step(2, 7.0, true);
  moved.workers[0].batch = 100;
  const std::string document = document_of(uneven_step(0, 0.0, false), uneven_step(1, 3.5, false), moved);
  const std::vector<json> counters = events_of(document, "C");
  ASSERT_EQ(counters.size(), 3U);
  EXPECT_EQ(counters[2].at("name"), "batch size of fast");
  EXPECT_EQ(counters[2].at("args").at("samples"), 100);
}

TEST(ChromeTraceTest, ShowsEventsAndWorkersThatJoinedLater) {
  const StepRecord late{.workers = {{.id = 5, .batch = 1, .compute_seconds = 1.0}, {.id = 6, .batch = 2}}};
  const EventRecord join{.step = 4, .seconds = 2.0, .event = "join", .worker = 5, .words = "late"};
  const std::string document = document_of(join, late);
  EXPECT_EQ(events_of(document, "i").at(0).at("name"), "join");
  EXPECT_EQ(events_of(document, "M").back().at("args").at("name"), "late");
  EXPECT_EQ(events_of(document, "C").at(0).at("name"), "batch size of late");
  EXPECT_EQ(events_of(document, "C").at(1).at("name"), "batch size of worker 6");
}

TEST(ChromeTraceTest, SkipsTimesThatAreNotFinite) {
  const StepRecord broken{
      .start_seconds = kUnknown, .workers = {{.id = 0, .compute_seconds = kUnknown}}, .changed = true};
  const std::string document = document_of(broken);
  EXPECT_TRUE(events_of(document, "X").empty());
  EXPECT_TRUE(events_of(document, "i").empty());
}

}  // namespace
}  // namespace isochron
