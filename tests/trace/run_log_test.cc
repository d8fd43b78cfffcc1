#include "isochron/core/trace/run_log.h"

#include <limits>

#include <gtest/gtest.h>

namespace isochron {
namespace {

TEST(RunLogTest, WritesTheHeaderWithItsSchema) {
  const RunHeader header{
      .program = "simulate",
      .version = "1.2.3",
      .policy = "uniform",
      .cluster = "a \"b\"",
      .global_batch = 128,
      .seed = std::numeric_limits<std::uint64_t>::max(),
      .workers = {{.id = 4, .name = "fast", .kind = "cpu"}}};
  EXPECT_EQ(
      to_json(header),
      R"({"type":"run","schema":1,"program":"simulate","version":"1.2.3","policy":"uniform","cluster":"a \"b\"",)"
      R"("global_batch":128,"seed":18446744073709551615,"workers":[{"id":4,"name":"fast","kind":"cpu"}]})");
}

TEST(RunLogTest, WritesWhatAProofNeeds) {
  EXPECT_NE(
      to_json(RunHeader{.samples_per_epoch = 60'000, .total_steps = 4'690, .model = "cnn", .dataset = "mnist"})
          .find(R"("seed":0,"samples_per_epoch":60000,"total_steps":4690,"model":"cnn","dataset":"mnist","workers")"),
      std::string::npos);
  EXPECT_NE(
      to_json(StepRecord{.step = 3, .epoch = 0, .position = 384})
          .find(R"({"type":"step","step":3,"epoch":0,"position":384,"start")"),
      std::string::npos);
}

TEST(RunLogTest, WritesAnEvaluation) {
  EXPECT_EQ(
      to_json(EvaluationRecord{.step = 9, .seconds = 4.5, .loss = 0.25, .accuracy = 0.5}),
      R"({"type":"evaluation","step":9,"seconds":4.5,"loss":0.25,"accuracy":0.5})");
}

TEST(RunLogTest, KnowsTheEventsThatSetTheStep) {
  EXPECT_TRUE(sets_step({.event = "rollback"}));
  EXPECT_TRUE(sets_step({.event = "resume"}));
  EXPECT_FALSE(sets_step({.event = "death"}));
}

TEST(RunLogTest, WritesAStepInColumns) {
  const StepRecord record{
      .step = 3,
      .start_seconds = 1.5,
      .seconds = 0.5,
      .workers =
          {{.id = 0, .batch = 96, .start_seconds = 1.5, .compute_seconds = 0.25, .wait_seconds = 0.125},
           {.id = 7, .batch = 32, .start_seconds = 1.5, .compute_seconds = 0.375, .exchange_seconds = 0.125}},
      .changed = true,
      .reason = Reason::kRebalanced,
      .words = "why"};
  EXPECT_EQ(
      to_json(record),
      R"({"type":"step","step":3,"start":1.5,"seconds":0.5,"workers":[0,7],"batch_sizes":[96,32],"starts":[1.5,1.5],)"
      R"("compute_seconds":[0.25,0.375],"wait_seconds":[0.125,0],"exchange_seconds":[0,0.125],)"
      R"("learning_rate_factor":1,"changed":true,"reason":"rebalanced","words":"why"})");
}

TEST(RunLogTest, LeavesOutWhatIsUnknownAndWritesNullForWhatJsonCannotHold) {
  StepRecord record{.seconds = std::numeric_limits<double>::infinity()};
  EXPECT_EQ(to_json(record).find("loss"), std::string::npos);
  EXPECT_EQ(to_json(record).find("staleness"), std::string::npos);
  EXPECT_NE(to_json(record).find(R"("seconds":null)"), std::string::npos);
  record.loss = 2.5;
  EXPECT_NE(to_json(record).find(R"("loss":2.5})"), std::string::npos);
}

TEST(RunLogTest, AnUpdateIsAStepOfOneWorkerWithItsStaleness) {
  const UpdateRecord record{
      .step = 3,
      .epoch = 0,
      .position = 64,
      .seconds = 0.5,
      .worker = {.id = 7, .batch = 32, .start_seconds = 1.5, .compute_seconds = 0.25, .exchange_seconds = 0.25},
      .loss = 2.5,
      .staleness = 2};
  EXPECT_EQ(
      to_json(record),
      R"({"type":"step","step":3,"epoch":0,"position":64,"start":1.5,"seconds":0.5,"workers":[7],"batch_sizes":[32],)"
      R"("starts":[1.5],"compute_seconds":[0.25],"wait_seconds":[0],"exchange_seconds":[0.25],)"
      R"("learning_rate_factor":1,"changed":false,"reason":"kept","loss":2.5,"staleness":2})");
}

TEST(RunLogTest, WritesAnEventOnOneLine) {
  EXPECT_EQ(
      to_json(EventRecord{.step = 9, .seconds = 4.5, .event = "kill", .worker = 2, .words = "line\nfeed"}),
      R"({"type":"event","step":9,"seconds":4.5,"event":"kill","worker":2,"words":"line\nfeed"})");
}

}  // namespace
}  // namespace isochron
