#include "isochron/core/dispatch/dispatcher.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"
#include "isochron/core/sample/ledger.h"

namespace isochron {
namespace {

using ::testing::ElementsAre;

Controller controller_of(std::size_t workers, std::int64_t global_batch, const std::string& policy) {
  Roster roster{.workers = {}, .global_batch = global_batch};
  for (WorkerId id = 0; id < workers; ++id) {
    roster.workers.push_back({.id = id});
  }
  return {roster, {.policy = policy}};
}

WorkerTelemetry telemetry(WorkerId worker, std::int64_t batch, double seconds) {
  return {.worker = worker, .batch = batch, .seconds = seconds};
}

std::vector<WorkerId> starting(Dispatcher& dispatcher) {
  std::vector<WorkerId> workers;
  for (const WorkOrder& order : dispatcher.take_orders()) {
    workers.push_back(order.worker);
  }
  return workers;
}

TEST(DispatcherTest, HoldsAWorkerThatIsTooFarAhead) {
  Dispatcher dispatcher(controller_of(2, 8, "uniform"), 1, ClaimPool());
  dispatcher.open(1000);
  dispatcher.ask(0);
  dispatcher.ask(1);
  EXPECT_THAT(starting(dispatcher), ElementsAre(0, 1));
  for (int i = 0; i < 2; ++i) {
    dispatcher.finish(0, telemetry(0, 4, 1.0));
    dispatcher.ask(0);
    // One ahead may start; two ahead waits.
    EXPECT_EQ(starting(dispatcher).size(), i == 0 ? 1U : 0U);
  }
  dispatcher.finish(1, telemetry(1, 4, 3.0));
  EXPECT_THAT(starting(dispatcher), ElementsAre(0));
}

TEST(DispatcherTest, BoundZeroDealsWholeRounds) {
  // 100 samples: rounds of 40, 40 and 20, each divided 3 to 1.
  Dispatcher dispatcher(controller_of(2, 40, "static:weights=3/1"), 0, ClaimPool());
  dispatcher.open(100);
  for (const std::int64_t expected : {40, 40, 20}) {
    dispatcher.ask(1);
    dispatcher.ask(0);
    const std::vector<WorkOrder> orders = dispatcher.take_orders();
    ASSERT_EQ(orders.size(), 2U);
    EXPECT_EQ(orders[0].round_samples, expected);
    EXPECT_EQ(orders[0].positions.size(), expected / 4);
    EXPECT_EQ(orders[1].positions.size(), expected * 3 / 4);
    dispatcher.finish(0, telemetry(0, 1, 1.0));
    EXPECT_TRUE(starting(dispatcher).empty());
    dispatcher.finish(1, telemetry(1, 1, 1.0));
  }
  dispatcher.ask(0);
  EXPECT_FALSE(dispatcher.at_barrier());
  dispatcher.ask(1);
  EXPECT_TRUE(starting(dispatcher).empty());
  EXPECT_TRUE(dispatcher.at_barrier());
}

TEST(DispatcherTest, BoundZeroDoesNotWaitForAWorkerWithoutAShare) {
  // A last round of one sample for three workers.
  Dispatcher dispatcher(controller_of(3, 3, "uniform"), 0, ClaimPool());
  dispatcher.open(1);
  for (const WorkerId id : {0U, 1U, 2U}) {
    dispatcher.ask(id);
  }
  const std::vector<WorkOrder> orders = dispatcher.take_orders();
  ASSERT_EQ(orders.size(), 1U);
  dispatcher.finish(orders[0].worker, telemetry(orders[0].worker, 1, 1.0));
  dispatcher.ask(orders[0].worker);
  EXPECT_TRUE(dispatcher.at_barrier());
}

TEST(DispatcherTest, BoundZeroCountsARoundAsAWholeOrNotAtAll) {
  Dispatcher dispatcher(controller_of(2, 8, "uniform"), 0, ClaimPool(16), 2);
  dispatcher.open(32);
  dispatcher.ask(0);
  dispatcher.ask(1);
  const std::vector<WorkOrder> orders = dispatcher.take_orders();
  ASSERT_EQ(orders.size(), 2U);
  EXPECT_EQ(orders[0].iteration, 2) << "it goes on from there";
  EXPECT_EQ(orders[0].positions, (Interval{16, 20}));
  EXPECT_FALSE(dispatcher.settled());
  dispatcher.finish(0, telemetry(0, 4, 1.0));
  EXPECT_FALSE(dispatcher.settled());
  EXPECT_THROW(dispatcher.leave(1), Error);
  dispatcher.finish(1, telemetry(1, 4, 1.0));
  EXPECT_TRUE(dispatcher.settled());
}

TEST(DispatcherTest, GivesTheSamplesOfALostWorkerToTheOthers) {
  Dispatcher dispatcher(controller_of(2, 8, "uniform"), std::nullopt, ClaimPool());
  dispatcher.open(8);
  dispatcher.ask(0);
  dispatcher.ask(1);
  EXPECT_EQ(dispatcher.take_orders()[1].positions, (Interval{4, 8}));
  dispatcher.finish(0, telemetry(0, 4, 1.0));
  dispatcher.ask(0);
  EXPECT_TRUE(starting(dispatcher).empty());
  EXPECT_FALSE(dispatcher.at_barrier());
  dispatcher.leave(1);
  const std::vector<WorkOrder> orders = dispatcher.take_orders();
  ASSERT_EQ(orders.size(), 1U);
  EXPECT_EQ(orders[0].positions, (Interval{4, 8}));
}

TEST(DispatcherTest, TheSplitFollowsTheTimesOfIterations) {
  Dispatcher dispatcher(controller_of(2, 100, "isochron"), std::nullopt, ClaimPool());
  dispatcher.open(100'000);
  std::map<WorkerId, std::int64_t> batch;
  for (const WorkerId id : {0U, 1U}) {
    dispatcher.ask(id);
  }
  for (int round = 0; round < 20; ++round) {
    for (const WorkOrder& order : dispatcher.take_orders()) {
      batch[order.worker] = order.positions.size();
      // Worker 1 is four times as fast: 80 to 20 makes their times equal.
      const double seconds = static_cast<double>(order.positions.size()) * (order.worker == 0 ? 0.04 : 0.01);
      dispatcher.finish(order.worker, telemetry(order.worker, order.positions.size(), seconds));
      dispatcher.ask(order.worker);
    }
  }
  EXPECT_NEAR(static_cast<double>(batch[0]), 20.0, 2.0);
  EXPECT_NEAR(static_cast<double>(batch[1]), 80.0, 2.0);
}

// A job whose iterations end, and whose workers die, in any order.
class RandomSchedule {
 public:
  explicit RandomSchedule(std::uint64_t seed)
      : random_({seed}),
        workers_(2 + random_.below(5)),
        bound_(random_.below(4) == 0 ? std::nullopt : std::optional(static_cast<std::int64_t>(random_.below(4)))),
        samples_(static_cast<std::int64_t>(20 + random_.below(200))),
        dispatcher_(
            controller_of(workers_, static_cast<std::int64_t>(workers_ * (1 + random_.below(8))), "isochron"),
            bound_,
            ClaimPool()),
        ledger_(samples_) {}

  // Until everybody is at the barrier.
  void run() {
    dispatcher_.open(samples_);
    for (WorkerId id = 0; id < workers_; ++id) {
      clocks_[id] = 0;
      dispatcher_.ask(id);
    }
    for (int steps = 0; !dispatcher_.at_barrier(); ++steps) {
      ASSERT_LT(steps, 10'000) << "it does not end";
      start();
      ASSERT_FALSE(working_.empty() && !dispatcher_.at_barrier()) << "all wait for ever";
      if (!working_.empty()) {
        end_or_kill(random_.below(working_.size()));
      }
    }
    EXPECT_TRUE(ledger_.complete());
    EXPECT_TRUE(ledger_.duplicates().empty());
  }

 private:
  void start() {
    for (const WorkOrder& order : dispatcher_.take_orders()) {
      const auto slowest = std::ranges::min_element(clocks_, {}, [](const auto& entry) { return entry.second; });
      const std::int64_t lead = clocks_[order.worker] - slowest->second;
      EXPECT_EQ(order.lead, bound_ == 0 ? 0 : lead);
      if (bound_ && *bound_ > 0) {
        EXPECT_LE(lead, *bound_);
      }
      working_.push_back(order);
    }
  }

  void end_or_kill(std::size_t which) {
    const WorkOrder order = working_[which];
    working_.erase(working_.begin() + static_cast<std::ptrdiff_t>(which));
    if (clocks_.size() > 1 && random_.below(20) == 0) {
      clocks_.erase(order.worker);
      if (bound_ == 0) {
        begin_round_again();
      } else {
        dispatcher_.leave(order.worker);
      }
      return;
    }
    ledger_.stage(
        {.positions =
             dispatcher_.finish(order.worker, telemetry(order.worker, order.positions.size(), random_.uniform() + 0.1)),
         .worker = order.worker});
    if (dispatcher_.settled()) {
      ledger_.commit();
    }
    ++clocks_[order.worker];
    dispatcher_.ask(order.worker);
  }

  void begin_round_again() {
    Controller controller = controller_of(workers_, dispatcher_.controller().roster().global_batch, "isochron");
    std::vector<Worker> rest = controller.roster().workers;
    std::erase_if(rest, [this](const Worker& worker) { return !clocks_.contains(worker.id); });
    controller.change_workers(rest);
    const std::vector<Interval> used = ledger_.intervals();
    const std::int64_t round = dispatcher_.clocks().slowest();
    dispatcher_ = Dispatcher(std::move(controller), bound_, ClaimPool(used.empty() ? 0 : used.back().last), round);
    dispatcher_.open(samples_);
    ledger_.discard();
    working_.clear();
    for (auto& [id, clock] : clocks_) {
      clock = round;
      dispatcher_.ask(id);
    }
  }

  Random random_;
  std::size_t workers_;
  std::optional<std::int64_t> bound_;
  std::int64_t samples_;
  Dispatcher dispatcher_;
  Ledger ledger_;
  std::map<WorkerId, std::int64_t> clocks_;  // of those who live, counted here
  std::vector<WorkOrder> working_;
};

TEST(DispatcherTest, UsesEverySampleOnceWithinTheBoundInTenThousandRandomSchedules) {
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    RandomSchedule(seed).run();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace isochron
