#include "isochron/core/worker.h"

#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace isochron {
namespace {

Roster three_workers() {
  return {.workers = {{.id = 1}, {.id = 5}, {.id = 9}}, .global_batch = 128};
}

/// What validate() says about three workers after `change`; empty if it accepts them.
std::string complaint(const std::function<void(Roster&)>& change) {
  Roster roster = three_workers();
  change(roster);
  try {
    roster.validate();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(RosterTest, AcceptsDefaults) {
  EXPECT_NO_THROW(three_workers().validate());
}

TEST(RosterTest, RefusesAnEmptyClusterAndAnEmptyBatch) {
  EXPECT_EQ(
      complaint([](Roster& roster) { roster.workers.clear(); }), "the cluster has no workers; permitted: 1 or more");
  EXPECT_EQ(complaint([](Roster& roster) { roster.global_batch = 0; }), "global batch is 0; permitted: 1 or more");
}

TEST(RosterTest, RefusesIdsThatRepeat) {
  EXPECT_EQ(
      complaint([](Roster& roster) { roster.workers[2].id = 1; }),
      "worker id 1 is there twice; permitted: distinct ids");
}

TEST(RosterTest, NamesTheWorkerTheFieldAndTheValue) {
  EXPECT_EQ(
      complaint([](Roster& roster) { roster.workers[1].min_batch = -1; }),
      "worker 5: min_batch is -1; permitted: 0 or more");
  EXPECT_EQ(
      complaint([](Roster& roster) {
        roster.workers[1].min_batch = 8;
        roster.workers[1].max_batch = 4;
      }),
      "worker 5: max_batch is 4; permitted: at least min_batch, 8");
  EXPECT_EQ(
      complaint([](Roster& roster) { roster.workers[1].granularity = 0; }),
      "worker 5: granularity is 0; permitted: 1 or more");
  EXPECT_EQ(
      complaint([](Roster& roster) { roster.workers[1].weight = std::numeric_limits<double>::quiet_NaN(); }),
      "worker 5: weight is nan; permitted: a finite number, 0 or more");
  EXPECT_EQ(
      complaint([](Roster& roster) { roster.workers[1].offset_seconds = std::numeric_limits<double>::infinity(); }),
      "worker 5: offset_seconds is inf; permitted: a finite number, 0 or more");
}

TEST(RosterTest, RefusesBoundsThatCannotHoldTheGlobalBatch) {
  EXPECT_EQ(
      complaint([](Roster& roster) {
        for (Worker& worker : roster.workers) {
          worker.max_batch = 32;
        }
      }),
      "the workers can take at most 96 samples together (sum of max_batch), but the global batch is 128");
  EXPECT_EQ(
      complaint([](Roster& roster) { roster.global_batch = 2; }),
      "the workers take at least 3 samples together (sum of min_batch), but the global batch is 2");
}

TEST(RosterTest, RefusesGranularitiesThatDoNotDivideOneAnother) {
  EXPECT_EQ(
      complaint([](Roster& roster) {
        roster.workers[0].granularity = 6;
        roster.workers[2].granularity = 4;
      }),
      "granularities 4 and 6 do not divide one another; permitted: granularities each of which divides every larger "
      "one");
}

}  // namespace
}  // namespace isochron
