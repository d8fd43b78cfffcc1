#include "isochron/core/dispatch/shard_ledger.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron {
namespace {

using Action = ShardLedger::Action;

PushHeader update(WorkerId worker, std::int64_t iteration) {
  return {.from = {.worker = worker, .iteration = iteration, .first = 0, .last = 4}, .rate = 0.5};
}

PushHeader part(WorkerId worker, std::int64_t round, std::int64_t samples, std::int64_t of) {
  return {
      .from = {.worker = worker, .iteration = round, .round = round, .first = 0, .last = samples},
      .round_samples = of,
      .weight = static_cast<double>(samples),
      .rate = 0.5};
}

PullHeader pull(WorkerId worker, std::int64_t iteration, std::int64_t rounds = 0) {
  return {.worker = worker, .iteration = iteration, .rounds = rounds};
}

TEST(ShardLedgerTest, AnUpdateCountsOnceHoweverOftenAndLateItComes) {
  ShardLedger ledger{PushRate{}};
  EXPECT_EQ(ledger.take(update(1, 0)).action, Action::kApply);
  EXPECT_EQ(ledger.take(update(1, 0)).staleness, -1);
  EXPECT_EQ(ledger.take(update(1, 1)).action, Action::kApply);
  EXPECT_EQ(ledger.take(update(1, 0)).action, Action::kNothing) << "it is late";
  EXPECT_EQ(ledger.updates(), 2);
}

TEST(ShardLedgerTest, StalenessIsWhatOthersDidSinceTheWorkerPulled) {
  ShardLedger ledger{PushRate{.by_staleness = true}};
  (void)ledger.pull(pull(0, 0));
  (void)ledger.pull(pull(1, 0));
  EXPECT_EQ(ledger.take(update(0, 0)).rate, 0.5);
  EXPECT_EQ(ledger.take(update(0, 1)).staleness, 0);
  const ShardLedger::Taken taken = ledger.take(update(1, 0));
  EXPECT_EQ(taken.staleness, 2);
  EXPECT_DOUBLE_EQ(taken.rate, 0.5 / 3.0);  // 1 / (1 + 2)
  (void)ledger.take(update(0, 2));
  (void)ledger.pull(pull(1, 0));  // it is late, for worker 1 is at iteration 1, and changes nothing
  EXPECT_EQ(ledger.take(update(1, 1)).staleness, 3);
}

TEST(ShardLedgerTest, ARoundIsAppliedWhenSomebodyPullsForTheNextOne) {
  ShardLedger ledger{PushRate{}};
  ShardLedger::Taken taken = ledger.take(part(0, 0, 3, 5));
  EXPECT_EQ(taken.action, Action::kAdd);
  EXPECT_TRUE(taken.first);
  taken = ledger.take(part(1, 0, 2, 5));
  EXPECT_FALSE(taken.first);
  EXPECT_EQ(taken.weight, 2.0);
  EXPECT_FALSE(ledger.pull(pull(0, 1, 0)).has_value());
  const auto round = ledger.pull(pull(0, 1, 1));
  ASSERT_TRUE(round.has_value());
  EXPECT_EQ(round->weight, 5.0);
  EXPECT_EQ(round->rate, 0.5);
  EXPECT_FALSE(ledger.pull(pull(1, 1, 1)).has_value()) << "once";
  EXPECT_THROW((void)ledger.pull(pull(1, 1, 2)), InvariantError) << "nothing of the second round is here";
}

TEST(ShardLedgerTest, ARoundThatIsDoneAgainBeginsWithNothing) {
  ShardLedger ledger{PushRate{}};
  (void)ledger.take(part(0, 0, 3, 5));
  ledger.restart_round();
  PushHeader again = part(0, 0, 5, 5);
  again.from.iteration = 1;
  EXPECT_TRUE(ledger.take(again).first);
  EXPECT_EQ(ledger.finish_rounds(1)->weight, 5.0);
  EXPECT_THROW((void)ledger.take(part(1, 0, 3, 5)), Error) << "that round is over";
}

TEST(ShardLedgerTest, AWorkerWithoutAGradientLeavesTheRoundWithoutAnUpdate) {
  ShardLedger ledger{PushRate{}};
  (void)ledger.take(part(0, 0, 3, 5));
  PushHeader nothing = part(1, 0, 2, 5);
  nothing.skipped = true;
  EXPECT_EQ(ledger.take(nothing).action, Action::kNothing);
  EXPECT_EQ(ledger.finish_rounds(1)->weight, 0.0);
  EXPECT_EQ(ledger.updates(), 1) << "one gradient came";
  (void)ledger.take(part(0, 1, 5, 5));
  EXPECT_EQ(ledger.finish_rounds(2)->weight, 5.0) << "the next round knows nothing of it";
}

}  // namespace
}  // namespace isochron
