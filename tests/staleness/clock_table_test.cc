#include "isochron/core/staleness/clock_table.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ClockTable table_of(std::optional<std::int64_t> bound, WorkerId workers) {
  ClockTable table(bound);
  for (WorkerId id = 0; id < workers; ++id) {
    table.join(id);
  }
  return table;
}

TEST(ClockTableTest, LetsAWorkerRunAheadByTheBoundAndNoFurther) {
  ClockTable table = table_of(2, 2);
  EXPECT_THAT(table.finish(0), ElementsAre(0));  // 1 ahead
  EXPECT_THAT(table.finish(0), ElementsAre(0));  // 2 ahead
  EXPECT_THAT(table.finish(0), IsEmpty());       // 3 ahead: waits
  EXPECT_FALSE(table.may_go_on(0));
  EXPECT_THAT(table.waiting(), ElementsAre(0));
  EXPECT_THAT(table.finish(1), ElementsAre(1, 0));
  EXPECT_THAT(table.waiting(), IsEmpty());
  EXPECT_EQ(table.clock(0), 3);
  EXPECT_EQ(table.slowest(), 1);
}

TEST(ClockTableTest, IsBulkSynchronousWithBoundZero) {
  ClockTable table = table_of(0, 3);
  for (int step = 0; step < 3; ++step) {
    EXPECT_THAT(table.finish(2), IsEmpty());
    EXPECT_THAT(table.finish(0), IsEmpty());
    EXPECT_THAT(table.finish(1), ElementsAre(1, 0, 2));
  }
}

TEST(ClockTableTest, NeverLetsAnAsynchronousWorkerWait) {
  ClockTable table = table_of(std::nullopt, 2);
  for (int step = 0; step < 1000; ++step) {
    EXPECT_THAT(table.finish(1), ElementsAre(1));
  }
  EXPECT_EQ(table.slowest(), 0);
  EXPECT_THAT(table.waiting(), IsEmpty());
}

TEST(ClockTableTest, ReleasesWhoWaitedForAWorkerThatLeaves) {
  ClockTable table = table_of(0, 4);
  table.finish(3);
  table.finish(1);
  EXPECT_THAT(table.leave(0), IsEmpty());  // worker 2 is still at it
  EXPECT_THAT(table.leave(2), ElementsAre(1, 3));
  EXPECT_EQ(table.size(), 2U);
}

TEST(ClockTableTest, StartsANewcomerAtTheSlowestClock) {
  ClockTable table = table_of(1, 2);
  table.finish(0);
  table.finish(0);
  table.finish(1);
  table.join(9);
  EXPECT_EQ(table.clock(9), 1);
  EXPECT_TRUE(table.may_go_on(9));
  for (const WorkerId id : {0U, 1U, 9U}) {
    table.leave(id);
  }
  table.join(10);
  EXPECT_EQ(table.clock(10), 1) << "the last to leave, worker 9, had finished one step";
}

TEST(ClockTableTest, CountsTheUpdatesOfOthersSinceThePull) {
  ClockTable table = table_of(std::nullopt, 3);
  table.pull(0);
  EXPECT_EQ(table.push(1), 0);
  EXPECT_EQ(table.push(2), 1);  // worker 1's
  EXPECT_EQ(table.push(0), 2);  // those of 1 and 2
  EXPECT_EQ(table.push(0), 2);  // no pull in between: the same two, its own does not count
  table.pull(0);
  EXPECT_EQ(table.push(0), 0);
  table.join(3);
  EXPECT_EQ(table.push(3), 0) << "a newcomer starts with the present parameters";
}

TEST(ClockTableTest, RefusesCallsOutOfTurn) {
  ClockTable table = table_of(0, 2);
  table.finish(0);
  EXPECT_THROW(table.finish(0), InvariantError);
  EXPECT_THROW(table.finish(7), InvariantError);
  EXPECT_THROW(table.leave(7), InvariantError);
  EXPECT_THROW(table.pull(7), InvariantError);
  EXPECT_THROW(table.push(7), InvariantError);
  EXPECT_THROW(table.join(1), InvariantError);
  try {
    const ClockTable refused(-1);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "staleness bound is -1; permitted: 0 or more");
  }
}

// Random schedules of what ssp.pml checks for three workers: any worker that was told to go on may finish next, anyone
// may leave at any moment, newcomers may join. `going` is what the workers know from the replies alone.
class Schedule {
 public:
  Schedule(std::int64_t bound, Random& random) : bound_(bound), table_(bound), random_(random) {
    for (int i = 0; i < 3; ++i) {
      join();
    }
  }

  void step() {
    const std::uint64_t dice = random_.below(20);
    if (dice == 0 && table_.size() < 6) {
      join();
    } else if (dice == 1 && table_.size() > 1) {
      leave();
    } else {
      const WorkerId worker = pick(going_);
      going_.erase(worker);
      tell(table_.finish(worker));
    }
    check();
    maybe_restore();
  }

 private:
  void join() {
    table_.join(next_);
    present_.insert(next_);
    going_.insert(next_);
    ++next_;
  }

  void leave() {
    const WorkerId worker = pick(present_);
    present_.erase(worker);
    going_.erase(worker);
    tell(table_.leave(worker));
  }

  void tell(const std::vector<WorkerId>& released) {
    for (const WorkerId worker : released) {
      ASSERT_TRUE(going_.insert(worker).second) << worker << " was told twice";
    }
  }

  void check() const {
    ASSERT_FALSE(going_.empty()) << "deadlock";
    std::int64_t slowest = table_.clock(*present_.begin());
    for (const WorkerId worker : present_) {
      slowest = std::min(slowest, table_.clock(worker));
    }
    ASSERT_EQ(table_.slowest(), slowest);
    for (const WorkerId worker : present_) {
      const std::int64_t ahead = table_.clock(worker) - slowest;
      if (going_.contains(worker)) {
        ASSERT_LE(ahead, bound_);
      } else {
        ASSERT_EQ(ahead, bound_ + 1);
      }
    }
    ASSERT_EQ(table_.waiting().size(), present_.size() - going_.size());
  }

  void maybe_restore() {
    if (random_.below(50) == 0) {
      ClockTable copy(bound_);
      restore_state(copy, save_state(table_));
      ASSERT_EQ(save_state(copy), save_state(table_));
      table_ = copy;
    }
  }

  WorkerId pick(const std::set<WorkerId>& workers) {
    return *std::next(workers.begin(), static_cast<std::ptrdiff_t>(random_.below(workers.size())));
  }

  std::int64_t bound_;
  ClockTable table_;
  Random& random_;
  std::set<WorkerId> present_;
  std::set<WorkerId> going_;
  WorkerId next_ = 0;
};

TEST(ClockTableTest, KeepsTheBoundAndNeverDeadlocksInTenThousandRandomSchedules) {
  Random random({2013});
  for (int run = 0; run < 10'000; ++run) {
    Schedule schedule(static_cast<std::int64_t>(random.below(4)), random);
    for (int i = 0; i < 60; ++i) {
      schedule.step();
      ASSERT_FALSE(HasFatalFailure()) << "schedule " << run << ", event " << i;
    }
  }
}

TEST(ClockTableTest, RefusesAStateThatDoesNotFit) {
  ClockTable table = table_of(1, 3);
  State state = save_state(table);
  State twice = state;
  twice.numbers.at("workers")[1] = twice.numbers.at("workers")[0];
  EXPECT_THROW(restore_state(table, twice), std::invalid_argument);
  state.numbers.at("clocks").pop_back();
  EXPECT_THROW(restore_state(table, state), std::invalid_argument);
}

}  // namespace
}  // namespace isochron
