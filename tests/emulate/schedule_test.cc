#include "isochron/emulate/schedule.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/sim/builtin.h"

namespace isochron::emulate {
namespace {

using testing::ElementsAre;

sim::ClusterSpec pair(std::vector<sim::Change> changes) {
  sim::ClusterSpec cluster;
  cluster.workers = {{.name = "a", .cores = 1.0}, {.name = "b", .cores = 0.5}};
  cluster.changes = std::move(changes);
  return cluster;
}

TEST(ScheduleTest, HoldsWhatTheChangesUpToTheStepSay) {
  const Schedule schedule(
      pair({{.at_step = 20, .worker = "b", .cores = 0.2}, {.at_step = 10, .worker = "*", .cores = 0.1}}));
  const Limits whole{.cores = 1.0};
  const Limits half{.cores = 0.5};
  const Limits tenth{.cores = 0.1};
  EXPECT_THAT(schedule.at(-1, -1.0), ElementsAre(whole, half));
  EXPECT_THAT(schedule.at(9, 1e9), ElementsAre(whole, half));
  EXPECT_THAT(schedule.at(10, 0.0), ElementsAre(tenth, tenth));
  EXPECT_THAT(schedule.at(20, 0.0), ElementsAre(tenth, Limits{.cores = 0.2}));
  EXPECT_THAT(schedule.at(0, 0.0), ElementsAre(whole, half)) << "the job has begun anew";
}

TEST(ScheduleTest, LetsTimesHoldOverSteps) {
  const Schedule schedule(
      pair({{.at_seconds = 2.0, .worker = "a", .cores = 0.3}, {.at_step = 5, .worker = "a", .cores = 0.7}}));
  EXPECT_EQ(schedule.at(5, 1.9).front().cores, 0.7);
  EXPECT_EQ(schedule.at(4, 2.0).front().cores, 0.3);
  EXPECT_EQ(schedule.at(5, 2.0).front().cores, 0.3);
}

TEST(ScheduleTest, StopsContinuesAndKills) {
  const Schedule schedule(pair(
      {{.at_step = 1, .worker = "a", .event = Event::kStop},
       {.at_step = 2, .worker = "a", .event = Event::kContinue},
       {.at_step = 3, .worker = "a", .event = Event::kKill},
       {.at_step = 4, .worker = "a", .event = Event::kContinue}}));
  EXPECT_TRUE(schedule.at(1, 0.0).front().stopped);
  EXPECT_EQ(schedule.at(2, 0.0).front(), Limits{.cores = 1.0});
  EXPECT_FALSE(schedule.at(3, 0.0).front().present);
  EXPECT_FALSE(schedule.at(9, 0.0).front().present) << "it is gone until it joins";
  EXPECT_EQ(schedule.at(9, 0.0).back(), Limits{.cores = 0.5});
}

TEST(ScheduleTest, WorkersMayComeLaterAndComeBack) {
  sim::ClusterSpec cluster = pair(
      {{.at_step = 1, .worker = "a", .event = Event::kKill},
       {.at_step = 2, .worker = "a", .event = Event::kJoin},
       {.at_step = 3, .worker = "b", .event = Event::kJoin}});
  cluster.workers.back().absent = true;
  const Schedule schedule(cluster);
  EXPECT_FALSE(schedule.at(1, 0.0).front().present);
  EXPECT_TRUE(schedule.at(2, 0.0).front().present);
  EXPECT_FALSE(schedule.at(2, 0.0).back().present);
  EXPECT_TRUE(schedule.at(3, 0.0).back().present);
}

TEST(ScheduleTest, WantsThoseWhoComeLaterToStandLast) {
  sim::ClusterSpec cluster = pair({});
  cluster.workers.front().absent = true;
  EXPECT_THROW(require_absent_last(cluster), std::invalid_argument);
}

TEST(ScheduleTest, WorkersKeepTheirPlacesWhenTheFileIsWrittenAnew) {
  const sim::ClusterSpec before{.workers = {{.name = "a"}, {.name = "b"}, {.name = "c"}}};
  sim::ClusterSpec next{.workers = {{.name = "new"}, {.name = "c", .cores = 0.5}, {.name = "a"}}};
  next.changes.push_back({.at_step = 9, .worker = "new", .event = Event::kKill});
  const Schedule schedule(followed_by(before, next));
  const std::vector<Limits> gone_and_come{{}, {.present = false}, {.cores = 0.5}, {}};
  EXPECT_EQ(schedule.at(0, 0.0), gone_and_come);
  EXPECT_FALSE(schedule.at(9, 0.0).back().present);
  // One that comes back does so in its old place.
  EXPECT_EQ(followed_by(followed_by(before, next), before).workers.at(1).absent, false);
}

TEST(ScheduleTest, ListsEveryStageOnceWhole) {
  // Four workers change at each of seven steps; between those of one step there is no stage.
  for (const std::vector<Limits>& stage : Schedule(sim::builtin_cluster("dynamic", 800)).stages()) {
    double sum = 0.0;
    for (const Limits& limits : stage) {
      sum += limits.cores;
    }
    EXPECT_DOUBLE_EQ(sum, 48.0);
  }
}

}  // namespace
}  // namespace isochron::emulate
