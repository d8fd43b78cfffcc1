#include "isochron/core/trace/former_run.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

StepRecord step_of(const std::vector<WorkerStep>& workers) {
  StepRecord record;
  record.workers = workers;
  return record;
}

RunHeader header_of(const std::vector<std::string>& names) {
  RunHeader header;
  for (std::size_t i = 0; i < names.size(); ++i) {
    header.workers.push_back({.id = i, .name = names[i], .kind = "cpu"});
  }
  return header;
}

TEST(FormerRunTest, SpeedsAreMediansOfTheLastSteps) {
  FormerRun run;
  run.add(header_of({"fast", "slow"}));
  for (int i = 0; i < 30; ++i) {  // forgotten: more than kFormerSteps ago
    run.add(step_of({{.id = 0, .batch = 8, .compute_seconds = 1.0}, {.id = 1, .batch = 8, .compute_seconds = 1.0}}));
  }
  for (int i = 0; i < 20; ++i) {  // 40 and 10 samples a second, with an outlier that a median does not see
    const double outlier = i == 7 ? 50.0 : 1.0;
    run.add(
        step_of({{.id = 0, .batch = 40, .compute_seconds = outlier}, {.id = 1, .batch = 5, .compute_seconds = 0.5}}));
  }
  EXPECT_THAT(run.speeds(), testing::ElementsAre(FormerSpeed{"fast", 40.0}, FormerSpeed{"slow", 10.0}));
}

TEST(FormerRunTest, StepsWithoutSamplesOrTimeSayNothing) {
  FormerRun run;
  run.add(header_of({"a"}));
  run.add(step_of({{.id = 0, .batch = 0, .compute_seconds = 1.0}}));
  run.add(step_of({{.id = 0, .batch = 4, .compute_seconds = 0.0}}));
  EXPECT_TRUE(run.speeds().empty());
}

TEST(FormerRunTest, WhoJoinedIsKnownByItsName) {
  FormerRun run;
  run.add(header_of({"a"}));
  run.add(EventRecord{.step = 1, .event = "join", .worker = 5, .words = "late"});
  UpdateRecord update;
  update.worker = {.id = 5, .batch = 6, .compute_seconds = 2.0};
  run.add(update);
  EXPECT_THAT(run.speeds(), testing::ElementsAre(FormerSpeed{"late", 3.0}));
}

TEST(FormerRunTest, WorkersGetTheirSpeedsByName) {
  std::vector<Worker> workers{{.id = 0, .name = "b"}, {.id = 1, .name = "new"}, {.id = 2, .name = "a"}};
  take_over(std::vector<FormerSpeed>{{"a", 10.0}, {"b", 40.0}}, workers);
  EXPECT_EQ(workers[0].former_speed, 40.0);
  EXPECT_EQ(workers[1].former_speed, 10.0);  // not known: the slowest
  EXPECT_EQ(workers[2].former_speed, 10.0);
}

TEST(FormerRunTest, ALogOfOthersIsRefused) {
  std::vector<Worker> workers{{.id = 0, .name = "b"}};
  const auto refusal = [&workers](const std::vector<FormerSpeed>& speeds) {
    try {
      take_over(speeds, workers);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(
      refusal({{"x", 1.0}, {"y", 2.0}}),
      "start_from is a log of x, y; permitted: a run log with steps of at least one of this job's workers: b");
  EXPECT_THAT(refusal({}), testing::StartsWith("start_from is a log of nobody's steps;"));
}

}  // namespace
}  // namespace isochron
