#include "isochron/view/run_view.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "tests/view/records.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::view {
namespace {

using testing::ElementsAre;
using testing::Field;

TEST(RunViewTest, SumsUpARun) {
  const RunView view = view_of(10);
  const Summary summary = view.summary();
  EXPECT_EQ(summary.steps, 10);
  EXPECT_EQ(summary.seconds, 10.0);
  EXPECT_EQ(summary.samples_per_second, 100.0);
  EXPECT_EQ(summary.step_seconds.p50, 1.0);
  EXPECT_EQ(summary.balance, 0.75);  // (0.5 + 1) / 2 over 1
  // 60 samples in 0.5 s and 40 in 1 s are 160 a second: 100 take 0.625 s, and took 1 s.
  EXPECT_EQ(summary.utilization, 0.625);
  EXPECT_TRUE(std::isnan(summary.accuracy));
  const WorkerTotals& slow = view.workers().at(1);
  EXPECT_EQ(slow.name, "slow");
  EXPECT_EQ(slow.samples, 400.0);
  EXPECT_EQ(slow.compute_seconds, 10.0);
  EXPECT_EQ(view.workers().at(0).wait_seconds, 5.0);
}

TEST(RunViewTest, KeepsReasonsEventsAndEvaluations) {
  RunView view(header_of({"a", "b"}));
  StepRecord step = step_of(0, 0.0, {50, 50}, {1.0, 1.0});
  view.add(step);
  step.step = 1;
  step.start_seconds = 1.0;
  step.changed = true;
  step.reason = Reason::kSpeedChanged;
  step.words = "b is twice as slow";
  view.add(step);
  view.add(EventRecord{.step = 2, .seconds = 2.0, .event = "join", .worker = 7, .words = "late"});
  view.add(EventRecord{.step = 2, .seconds = 2.5, .event = "death", .worker = 1, .words = "no answer"});
  view.add(EvaluationRecord{.step = 2, .seconds = 2.6, .loss = 0.5, .accuracy = 0.9});

  const auto decisions = view.decisions().kept();
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].what, "speed-changed");
  EXPECT_EQ(decisions[0].words, "b is twice as slow");
  EXPECT_THAT(view.events().kept(), ElementsAre(Field(&Note::worker, "late"), Field(&Note::worker, "b")));
  EXPECT_EQ(view.events().kept()[1].words, "no answer");
  EXPECT_FALSE(view.workers()[1].present);
  EXPECT_EQ(view.workers()[2].name, "late");
  EXPECT_EQ(view.summary().accuracy, 0.9);
  EXPECT_EQ(view.summary().adjustments, 1);
}

TEST(RunViewTest, KeepsTheFirstAndTheLastOfManyDecisions) {
  RunView view(header_of({"a", "b"}));
  for (std::int64_t step = 0; step < 5000; ++step) {
    StepRecord record = step_of(step, static_cast<double>(step), {50, 50}, {1.0, 1.0});
    record.changed = true;
    view.add(record);
  }
  const auto kept = view.decisions().kept();
  EXPECT_EQ(view.decisions().total(), 5000U);
  EXPECT_EQ(kept.size(), 600U);
  EXPECT_EQ(kept.front().step, 0);
  EXPECT_EQ(kept.at(300).step, 4700);
  EXPECT_EQ(kept.back().step, 4999);
}

TEST(RunViewTest, GoesOnWithTheClockOfAnotherProcess) {
  RunView view = view_of(10);
  view.add(EventRecord{.step = 8, .event = "resume"});
  view.add(step_of(8, 0.25, {60, 40}, {0.5, 1.0}));  // 0.25 s after the new process began
  const auto bins = view.timeline().bins();
  EXPECT_EQ(bins.size(), 9U);  // 8 and 9 did not happen, 8 happened again
  EXPECT_EQ(bins.back()->first_step, 8);
  EXPECT_EQ(bins.back()->start, 10.0);
  EXPECT_EQ(view.events().kept().at(0).seconds, 10.0);
}

TEST(RunViewTest, LeavesOutWhatLiesBetweenSteps) {
  // Steps of a second at 2, 3 and 60 s: another run had its turn between them, after an evaluation of a second.
  RunView view(header_of({"a", "b"}));
  view.add(step_of(0, 2.0, {50, 50}, {1.0, 1.0}));
  view.add(step_of(1, 3.0, {50, 50}, {1.0, 1.0}));
  view.add(EvaluationRecord{.step = 2, .seconds = 5.0, .loss = 0.5, .accuracy = 0.9});
  view.add(EventRecord{.step = 2, .seconds = 55.0, .event = "speed", .worker = 1, .words = "slower"});
  view.add(step_of(2, 60.0, {50, 50}, {1.0, 1.0}));
  const auto bins = view.timeline().bins();
  EXPECT_EQ(bins.at(0)->start, 0.0);
  EXPECT_EQ(bins.at(1)->start, 1.0);
  EXPECT_EQ(bins.at(2)->start, 2.0);
  EXPECT_EQ(bins.at(2)->end, view.summary().seconds);
  EXPECT_EQ(view.evaluations().back().seconds, 2.0);
  EXPECT_EQ(view.events().kept().at(0).seconds, 2.0);
  EXPECT_EQ(view.summary().between_seconds, 58.0);  // 2 before the first, 56 before the last
}

TEST(RunViewTest, MeasuresOverlappingStepsByTheClock) {
  RunView view(header_of({"a", "b"}));
  for (std::int64_t i = 0; i < 10; ++i) {
    const std::int64_t second = i / 2;
    view.add(update_of(static_cast<WorkerId>(i % 2), static_cast<double>(second), 1.0));
  }
  EXPECT_EQ(view.summary().samples_per_second, 100.0);  // two of 50 in every second
  EXPECT_EQ(view.summary().balance, 1.0);               // everybody's last iteration took a second
}

TEST(RunViewTest, CountsTheTimeOfUpdatesOnceAndThatOfEveryProcess) {
  RunView view(header_of({"a", "b"}));
  const auto push = [&view](double start, double seconds) { view.add(update_of(0, start, seconds)); };
  push(0.0, 1.0);
  push(5.0, 1.0);
  push(2.0, 5.0);  // began before the one that ended before
  EXPECT_EQ(view.summary().seconds, 6.0);
  view.add(EventRecord{.step = 1, .event = "resume"});
  push(0.0, 4.0);
  EXPECT_EQ(view.summary().seconds, 10.0);
  EXPECT_EQ(view.summary().samples_per_second, 20.0);
}

TEST(RunViewTest, LeavesOutWhatLiesBetweenTheEpochsOfUpdates) {
  // Two epochs from 2 to 7 s and from 60 to 63 s. The second worker's update of 3 s begins before the first worker's
  // second one has, and ends after it: what seems to be a gap there is none.
  RunView view(header_of({"a", "b"}));
  const auto push = [&view](WorkerId worker, std::int64_t epoch, double start, double seconds) {
    UpdateRecord update = update_of(worker, start, seconds);
    update.epoch = epoch;
    view.add(update);
  };
  push(0, 0, 2.0, 1.0);
  push(0, 0, 5.0, 1.0);
  push(1, 0, 4.0, 3.0);
  view.add(EvaluationRecord{.step = 3, .seconds = 7.0, .loss = 0.5, .accuracy = 0.9});
  push(0, 1, 60.0, 1.0);
  push(1, 1, 60.0, 3.0);
  const auto bins = view.timeline().bins();
  std::vector<double> starts;
  std::ranges::transform(bins, std::back_inserter(starts), &Bin::start);
  EXPECT_THAT(starts, ElementsAre(0.0, 3.0, 2.0, 5.0, 5.0));
  EXPECT_EQ(bins.back()->end, 8.0);
  EXPECT_EQ(view.evaluations().back().seconds, 5.0);
  EXPECT_EQ(view.summary().between_seconds, 55.0);  // 2 before the first, 53 between the epochs
  EXPECT_EQ(view.summary().seconds, 7.0);           // from 1 to 2 nobody was at work
}

TEST(RunViewTest, SurvivesWhateverALogSays) {
  RunHeader header = header_of({std::string(100000, 'x'), "<script>"});
  RunView view(header);
  const double odd[] = {
      std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -1e308, 1e308};
  for (const double value : odd) {
    StepRecord step = step_of(3, value, {50, 50}, {value, 1.0});
    step.seconds = value;
    step.loss = value;
    step.words = std::string(100000, 'w');
    step.changed = true;
    view.add(step);
    view.add(EventRecord{.step = 0, .seconds = value, .event = std::string(1000, 'e'), .worker = ~WorkerId{0}});
    view.add(EvaluationRecord{.step = 0, .seconds = value, .loss = value, .accuracy = value});
  }
  EXPECT_EQ(view.timeline().records(), 4);
  EXPECT_LT(view.workers()[0].name.size(), 100U);
  EXPECT_LT(view.decisions().kept()[0].words.size(), 500U);
  (void)view.summary();
  (void)view.curves();
}

TEST(RunViewTest, HasLinesForABoundedNumberOfWorkers) {
  std::vector<std::string> names(1500, "w");
  RunView view(header_of(names));
  view.add(step_of(0, 0.0, std::vector<std::int64_t>(1500, 2), std::vector<double>(1500, 1.0)));
  EXPECT_EQ(view.workers().size(), 1024U);
  EXPECT_EQ(view.workers_left_out(), 476U);
  EXPECT_EQ(view.summary().samples_per_second, 3000.0);
}

}  // namespace
}  // namespace isochron::view
