#include "isochron/core/dispatch/coordinator.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/dispatch/shard_ledger.h"
#include "isochron/core/error.h"
#include "isochron/core/random/random.h"
#include "isochron/core/sample/ledger.h"

namespace isochron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Dispatcher dispatcher_of(
    std::size_t workers, std::int64_t global_batch, std::optional<std::int64_t> bound, const std::string& policy) {
  Roster roster{.workers = {}, .global_batch = global_batch};
  for (WorkerId id = 0; id < workers; ++id) {
    roster.workers.push_back({.id = id});
  }
  return {Controller(roster, {.policy = policy}), bound, ClaimPool()};
}

IterationReport finished(std::int64_t sequence, std::int64_t batch, double seconds = 1.0) {
  return {.sequence = sequence, .finished = true, .batch = batch, .seconds = seconds};
}

TEST(CoordinatorTest, AReportThatComesTwiceCountsOnceAndIsAnsweredAgain) {
  Coordinator coordinator(dispatcher_of(2, 6, std::nullopt, "uniform"), {0, 1});
  (void)coordinator.open(0, 12, 0);
  ASSERT_EQ(coordinator.hear(0, {}).size(), 1U);
  const auto first = coordinator.hear(0, finished(1, 3));
  ASSERT_EQ(first.size(), 1U);
  const auto again = coordinator.hear(0, finished(1, 3));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].assignment.first, first[0].assignment.first);
  EXPECT_EQ(again[0].assignment.sequence, 1);
  ASSERT_EQ(again[0].assignment.records.size(), 1U) << "what it was told the first time may be lost";
  EXPECT_EQ(again[0].assignment.records[0].step, first[0].assignment.records[0].step);
  EXPECT_THAT(coordinator.hear(0, {}), IsEmpty()) << "the answer to that was had";
  EXPECT_EQ(coordinator.records().size(), 1U);
}

TEST(CoordinatorTest, AReportThatWaitsIsAnsweredOnce) {
  Coordinator coordinator(dispatcher_of(2, 6, 0, "uniform"), {0, 1});
  (void)coordinator.open(0, 12, 0);
  (void)coordinator.hear(0, {});
  EXPECT_THAT(coordinator.hear(0, finished(1, 3)), IsEmpty()) << "the round is not over";
  EXPECT_THAT(coordinator.hear(0, finished(1, 3)), IsEmpty());
  EXPECT_THAT(coordinator.late(), ElementsAre(1));
  (void)coordinator.hear(1, {});
  EXPECT_EQ(coordinator.hear(1, finished(1, 3)).size(), 2U);
}

TEST(CoordinatorTest, ReportsBeforeItOpensWaitForIt) {
  Coordinator coordinator(dispatcher_of(2, 6, std::nullopt, "uniform"), {0, 1});
  EXPECT_THAT(coordinator.hear(1, {}), IsEmpty());
  EXPECT_THAT(coordinator.late(), ElementsAre(0));
  const auto replies = coordinator.open(0, 12, 0);
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].rank, 1);
  EXPECT_EQ(replies[0].assignment.batch(), 3);
}

TEST(CoordinatorTest, WhoLeavesIsMissedWhenOthersWaitForIt) {
  Coordinator coordinator(dispatcher_of(2, 6, std::nullopt, "uniform"), {0, 1});
  (void)coordinator.open(0, 3, 0);
  (void)coordinator.hear(0, {});
  coordinator.leave(1);
  EXPECT_THAT(coordinator.missing(), IsEmpty()) << "nobody waits";
  EXPECT_THAT(coordinator.hear(0, finished(1, 3)), IsEmpty());
  EXPECT_THAT(coordinator.missing(), ElementsAre(1));
}

TEST(CoordinatorTest, ARankThatOnlyServesComesToBarriersAlone) {
  Coordinator coordinator(dispatcher_of(1, 3, std::nullopt, "uniform"), {0, std::nullopt});
  (void)coordinator.open(0, 3, 0);
  EXPECT_THAT(coordinator.hear(1, {}), IsEmpty());
  ASSERT_EQ(coordinator.hear(0, {}).size(), 1U);
  const auto replies = coordinator.hear(0, finished(1, 3));
  ASSERT_EQ(replies.size(), 2U);
  for (const Coordinator::Reply& reply : replies) {
    EXPECT_TRUE(reply.assignment.barrier);
    EXPECT_EQ(reply.assignment.last, 3);
    EXPECT_EQ(reply.assignment.records.size(), 1U);
    EXPECT_FALSE(reply.assignment.controller.empty());
  }
}

TEST(CoordinatorTest, ATimeThatIsNotWarmDoesNotCount) {
  for (const bool warm : {true, false}) {
    Coordinator coordinator(dispatcher_of(2, 12, std::nullopt, "isochron"), {0, 1});
    (void)coordinator.open(0, 1000, 0);
    std::vector<std::int64_t> split;
    for (const int rank : {0, 1}) {
      EXPECT_THAT(coordinator.hear(rank, {})[0].assignment.decision.batch_sizes, ElementsAre(6, 6));
    }
    for (const int rank : {0, 1}) {
      IterationReport report = finished(1, 6, rank == 0 ? 9.0 : 1.0);
      report.warm = warm;
      split = coordinator.hear(rank, report)[0].assignment.decision.batch_sizes;
    }
    EXPECT_EQ(split[0] < split[1], warm) << split[0] << " to " << split[1];
  }
}

TEST(CoordinatorTest, AGradientThatIsNotFiniteIsToldToAll) {
  Coordinator coordinator(dispatcher_of(2, 6, std::nullopt, "uniform"), {0, 1});
  (void)coordinator.open(0, 100, 0);
  (void)coordinator.hear(0, {});
  (void)coordinator.hear(1, {});
  IterationReport report = finished(1, 3);
  report.non_finite = "the gradient of worker-1";
  (void)coordinator.hear(1, report);
  EXPECT_EQ(coordinator.non_finite(), report.non_finite);
  for (const Coordinator::Reply& reply : coordinator.hear(0, finished(1, 3))) {
    EXPECT_EQ(reply.assignment.non_finite, report.non_finite);
  }
}

// A whole job of workers, shards and the coordinator over a network that loses, doubles and delays messages. Whoever
// has no answer sends again. An update moves every shard by the number of its samples.
class LossyJob {
 public:
  explicit LossyJob(std::uint64_t seed)
      : random_({seed}),
        workers_(2 + random_.below(3)),
        bound_(random_.below(4) == 0 ? std::nullopt : std::optional(static_cast<std::int64_t>(random_.below(3)))),
        samples_(static_cast<std::int64_t>(8 + random_.below(24))),
        global_batch_(static_cast<std::int64_t>(workers_.size() * (1 + random_.below(4)))),
        shards_(1 + random_.below(2)),
        coordinator_(
            dispatcher_of(workers_.size(), global_batch_, bound_, random_.below(8) == 0 ? "isochron" : "uniform"),
            ranks()) {
    const bool stops = random_.below(4) == 0;
    stopper_ = stops ? static_cast<std::int64_t>(random_.below(workers_.size())) : -1;
  }

  void run() {
    for (epoch_ = 0; epoch_ < 2 && !stopped_; ++epoch_) {
      for (Worker& worker : workers_) {
        worker.phase = Phase::kAsking;
        worker.used.emplace(samples_);
      }
      open_ = false;
      for (int turn = 0; !std::ranges::all_of(workers_, [](const Worker& w) { return w.phase == Phase::kDone; });
           ++turn) {
        ASSERT_LT(turn, 100'000) << "it does not end";
        turn_once();
        ASSERT_FALSE(::testing::Test::HasFailure());
      }
      check();
    }
  }

 private:
  enum class Phase : std::uint8_t { kAsking, kPulling, kPushing, kDone };
  enum class Kind : std::uint8_t { kReport, kAssignment, kPull, kValues, kPush, kAnswer };
  struct Message {
    Kind kind;
    std::size_t worker;
    std::size_t shard;
    std::string bytes;
  };
  struct Worker {
    Phase phase = Phase::kDone;
    IterationReport report;
    Assignment assignment;
    std::set<std::size_t> missing;  // shards that have not answered
    std::int64_t iterations = 0;
    std::int64_t rounds = 0;
    std::optional<Ledger> used;
    std::int64_t next_record = 0;
  };
  struct Shard {
    ShardLedger ledger{PushRate{}};
    double moved = 0.0;
    double sum = 0.0;
  };

  std::vector<std::optional<WorkerId>> ranks() const {
    std::vector<std::optional<WorkerId>> ranks;
    for (WorkerId id = 0; id < workers_.size(); ++id) {
      ranks.emplace_back(id);
    }
    return ranks;
  }

  void turn_once() {
    if (!open_ && random_.below(4) == 0) {
      open_ = true;
      answer(coordinator_.open(epoch_, samples_, next_record_));
    }
    if (network_.empty() || random_.below(16) == 0) {
      for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
        send_requests(worker);
      }
      return;
    }
    const std::size_t which = random_.below(network_.size());
    const Message message = network_[which];
    if (random_.below(6) != 0) {  // else it will come a second time
      network_[which] = network_.back();
      network_.pop_back();
    }
    if (random_.below(6) != 0) {  // else it is lost
      deliver(message);
    }
  }

  void send_requests(std::size_t number) {
    Worker& worker = workers_[number];
    if (network_.size() > 60) {
      return;
    }
    if (worker.phase == Phase::kAsking) {
      network_.push_back({Kind::kReport, number, 0, encode(worker.report)});
    }
    for (const std::size_t shard : worker.missing) {
      if (worker.phase == Phase::kPulling) {
        const PullHeader pull{.worker = number, .iteration = worker.iterations, .rounds = worker.rounds};
        network_.push_back({Kind::kPull, number, shard, encode(pull)});
      } else {
        network_.push_back({Kind::kPush, number, shard, encode(push_of(number))});
      }
    }
  }

  PushHeader push_of(std::size_t number) const {
    const Worker& worker = workers_[number];
    const Assignment& order = worker.assignment;
    return {
        .from =
            {.worker = number,
             .iteration = worker.iterations,
             .round = order.iteration,
             .epoch = epoch_,
             .first = order.first,
             .last = order.last},
        .round_samples = order.round_samples,
        .weight = static_cast<double>(order.batch()),
        .rate = 1.0};
  }

  void answer(const std::vector<Coordinator::Reply>& replies) {
    for (const Coordinator::Reply& reply : replies) {
      network_.push_back({Kind::kAssignment, static_cast<std::size_t>(reply.rank), 0, encode(reply.assignment)});
    }
  }

  void deliver(const Message& message) {
    Shard& shard = shards_[message.shard];
    switch (message.kind) {
      case Kind::kReport:
        answer(coordinator_.hear(static_cast<int>(message.worker), decode<IterationReport>(message.bytes)));
        break;
      case Kind::kAssignment:
        begin(message.worker, decode<Assignment>(message.bytes));
        break;
      case Kind::kPull: {
        const auto pull = decode<PullHeader>(message.bytes);
        if (const auto round = shard.ledger.pull(pull)) {
          EXPECT_EQ(shard.sum, round->weight);
          shard.moved += shard.sum;
        }
        network_.push_back({Kind::kValues, message.worker, message.shard, encode(pull)});
        break;
      }
      case Kind::kPush:
        apply(message, decode<PushHeader>(message.bytes));
        break;
      case Kind::kValues: {
        const auto pull = decode<PullHeader>(message.bytes);
        const Worker& worker = workers_[message.worker];
        // Values of an earlier request may be of an earlier round.
        if (worker.phase == Phase::kPulling && pull.iteration == worker.iterations && pull.rounds == worker.rounds) {
          count_answer(message, 0);
        }
        break;
      }
      case Kind::kAnswer: {
        const auto answer = decode<PushAnswer>(message.bytes);
        const Worker& worker = workers_[message.worker];
        if (worker.phase == Phase::kPushing && answer.iteration == worker.iterations) {
          count_answer(message, answer.staleness);
        }
        break;
      }
    }
  }

  void apply(const Message& message, const PushHeader& push) {
    Shard& shard = shards_[message.shard];
    const ShardLedger::Taken taken = shard.ledger.take(push);
    const auto samples = static_cast<double>(push.from.samples());
    if (taken.action == ShardLedger::Action::kApply) {
      shard.moved += samples;
    } else if (taken.action == ShardLedger::Action::kAdd) {
      shard.sum = (taken.first ? 0.0 : shard.sum) + samples;
    }
    const PushAnswer answer{.iteration = push.from.iteration, .staleness = taken.staleness};
    network_.push_back({Kind::kAnswer, message.worker, message.shard, encode(answer)});
  }

  void begin(std::size_t number, const Assignment& assignment) {
    Worker& worker = workers_[number];
    if (worker.phase != Phase::kAsking || assignment.sequence != worker.report.sequence) {
      return;  // the answer to an earlier report
    }
    worker.assignment = assignment;
    worker.rounds = bound_ == 0 ? assignment.iteration : 0;
    for (const UpdateRecord& record : assignment.records) {
      EXPECT_EQ(record.step, worker.next_record++);
      const Interval positions{.first = record.position, .last = record.position + record.worker.batch};
      worker.used->stage({.positions = positions, .worker = record.worker.id});
      worker.used->commit();
    }
    if (!assignment.barrier && bound_ && *bound_ > 0) {
      const auto slowest = std::ranges::min_element(workers_, {}, &Worker::iterations);
      EXPECT_LE(worker.iterations - slowest->iterations, *bound_);
    }
    worker.phase = Phase::kPulling;
    expect_answers(worker);
  }

  void expect_answers(Worker& worker) const {
    for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
      worker.missing.insert(shard);
    }
  }

  void count_answer(const Message& message, std::int64_t staleness) {
    Worker& worker = workers_[message.worker];
    worker.report.staleness = std::max(worker.report.staleness, staleness);
    worker.missing.erase(message.shard);
    if (!worker.missing.empty()) {
      return;
    }
    if (worker.phase == Phase::kPulling) {
      worker.phase = worker.assignment.barrier ? Phase::kDone : Phase::kPushing;
      worker.report = {.sequence = worker.report.sequence + 1};
      if (!worker.assignment.barrier) {
        expect_answers(worker);
      }
      return;
    }
    worker.report.finished = true;
    worker.report.batch = worker.assignment.batch();
    worker.report.seconds = random_.uniform() + 0.1;
    worker.report.stop = std::cmp_equal(message.worker, stopper_) && random_.below(4) == 0 ? 1 : 0;
    ++worker.iterations;
    used_ += worker.report.batch;
    worker.phase = Phase::kAsking;
  }

  // At a barrier all know the same, every sample was used once, and every shard has every update once.
  void check() {
    const Assignment& barrier = workers_.front().assignment;
    std::int64_t iterations = 0;
    for (const Worker& worker : workers_) {
      iterations += worker.iterations;
      EXPECT_EQ(worker.next_record, workers_.front().next_record);
      EXPECT_EQ(worker.assignment.last, barrier.last);
      EXPECT_TRUE(worker.used->duplicates().empty());
      EXPECT_EQ(worker.used->used(), barrier.last);
      EXPECT_EQ(worker.assignment.stopping, barrier.stopping);
    }
    EXPECT_TRUE(barrier.stopping || barrier.last == samples_);
    for (const Shard& shard : shards_) {
      EXPECT_EQ(shard.ledger.updates(), iterations);
      EXPECT_EQ(shard.moved, static_cast<double>(used_));
    }
    EXPECT_EQ(workers_.front().next_record, iterations);
    next_record_ = workers_.front().next_record;
    stopped_ = barrier.stopping;
  }

  Random random_;
  std::vector<Worker> workers_;
  std::optional<std::int64_t> bound_;
  std::int64_t samples_;
  std::int64_t global_batch_;
  std::vector<Shard> shards_;
  Coordinator coordinator_;
  std::int64_t stopper_ = -1;
  std::vector<Message> network_;
  std::int64_t epoch_ = 0;
  bool open_ = false;
  bool stopped_ = false;
  std::int64_t next_record_ = 0;
  std::int64_t used_ = 0;
};

TEST(CoordinatorTest, LostDoubledAndLateMessagesChangeNothingInTenThousandRandomSchedules) {
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    LossyJob(seed).run();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace isochron
