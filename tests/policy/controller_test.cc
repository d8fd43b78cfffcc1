#include "isochron/core/policy/controller.h"

#include <numeric>
#include <stdexcept>

#include "tests/policy/support.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ControllerTest, CountsStepsFromZero) {
  Controller controller = controller_for("uniform", roster_of({1, 1}, 16));
  EXPECT_EQ(controller.decision().step, 0);
  EXPECT_EQ(controller.decision().reason, Reason::kStarted);
  EXPECT_FALSE(controller.decision().changed);
  EXPECT_EQ(controller.observe({}).step, 1);
  EXPECT_EQ(controller.observe({}).step, 2);
}

TEST(ControllerTest, CorrectsADriftingSumAndSaysSo) {
  // The reference code's law at HL8 drifts away from 128 at its first adjustment from (32, 32, 32, 32): the test of the
  // law has the numbers.
  Controller controller = controller_for("omnilearn:variant=code,interval=1", roster_of({6, 6, 4, 32}, 128));
  bool repaired = false;
  for (int step = 0; step < 5; ++step) {
    const Decision& decision = controller.observe(report_of(controller, affine_times({6, 6, 4, 32})));
    EXPECT_EQ(std::accumulate(decision.batch_sizes.begin(), decision.batch_sizes.end(), std::int64_t{0}), 128);
    repaired = repaired || decision.words.find(" samples repaired to 128") != std::string::npos;
    EXPECT_EQ(decision.repaired, decision.words.find("repaired") != std::string::npos) << decision.words;
  }
  EXPECT_TRUE(repaired);
}

TEST(ControllerTest, TakesTheLearningRateFactorFromTheRule) {
  const Controller controller(
      roster_of({1, 1}, 256), {.policy = "uniform", .rate = {.rule = RateRule::kLinear, .reference_batch = 64}});
  EXPECT_DOUBLE_EQ(controller.decision().learning_rate_factor, 4.0);
}

TEST(ControllerTest, DealsAnewWhenAWorkerLeavesOrJoins) {
  Controller controller = controller_for("uniform", roster_of({1, 1, 1}, 12));
  (void)controller.observe({});
  std::vector<Worker> workers = controller.roster().workers;
  workers.pop_back();
  EXPECT_THAT(controller.change_workers(workers).batch_sizes, ElementsAre(6, 6));
  EXPECT_EQ(controller.decision().step, 1);
  EXPECT_EQ(controller.decision().reason, Reason::kRosterChanged);
  EXPECT_TRUE(controller.decision().changed);
  workers.push_back(Worker{.id = 9});
  workers.push_back(Worker{.id = 10});
  EXPECT_THAT(controller.change_workers(workers).batch_sizes, ElementsAre(3, 3, 3, 3));
}

TEST(ControllerTest, ARefusedChangeOfWorkersChangesNothing) {
  Controller controller = controller_for("static:weights=1/2/3", roster_of({0, 0, 0}, 12));
  const State before = controller.state();
  std::vector<Worker> workers = controller.roster().workers;
  workers.front().max_batch = 1;
  workers.back().max_batch = 1;
  workers[1].max_batch = 1;
  EXPECT_THROW((void)controller.change_workers(workers), std::invalid_argument);  // no room for B
  workers = controller.roster().workers;
  workers.pop_back();
  EXPECT_THROW((void)controller.change_workers(workers), std::invalid_argument);  // three weights for two workers
  EXPECT_THROW((void)controller.change_workers({}), std::invalid_argument);
  EXPECT_EQ(controller.state(), before);
  EXPECT_EQ(controller.roster().workers.size(), 3U);
}

TEST(ControllerTest, RestoresIntoWorkersOfTheSameIdsOnly) {
  Controller saved = controller_for("omnilearn", roster_of({1, 2}, 64));
  (void)run(saved, affine_times({1, 2}), 3);
  const State state = saved.state();

  Controller same = controller_for("omnilearn", roster_of({1, 2}, 64));
  same.restore(state);
  EXPECT_EQ(same.state(), state);
  EXPECT_EQ(same.decision().words, saved.decision().words);

  Controller other = controller_for("omnilearn", roster_of({1, 2, 3}, 64));
  EXPECT_THAT(
      error_of<std::invalid_argument>([&] { other.restore(state); }),
      HasSubstr("workers is '1 2'; permitted: '1 2 3'"));
  Controller another = controller_for("dlb", roster_of({1, 2}, 64));
  EXPECT_THAT(
      error_of<std::invalid_argument>([&] { another.restore(state); }),
      HasSubstr("policy is 'omnilearn'; permitted: 'dlb'"));
}

TEST(ControllerTest, RefusesAStateWhoseSplitIsNotLegal) {
  Controller controller = controller_for("uniform", roster_of({1, 1}, 16));
  State state = controller.state();
  state.numbers["batch_sizes"] = {8.0, 9.0};
  EXPECT_THROW(controller.restore(state), std::invalid_argument);
  state.numbers["batch_sizes"] = {8.0, 4.0, 4.0};
  EXPECT_THROW(controller.restore(state), std::invalid_argument);
}

TEST(ControllerTest, KeepsIdsBeyondWhatANumberHoldsExactly) {
  Roster roster = roster_of({1, 1}, 16);
  roster.workers[0].id = 0xffffffffffffffffU;
  roster.workers[1].id = 0xfffffffffffffffeU;
  Controller controller = controller_for("omnilearn", roster);
  controller.restore(State::parse(controller.state().serialize()));
  EXPECT_THAT(controller.decision().batch_sizes, ElementsAre(8, 8));
}

}  // namespace
}  // namespace isochron
