#include "isochron/core/replica/progress.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron {
namespace {

ProgressReport at(std::int64_t progress, WorkerId id) {
  return {.progress = progress, .self = {.id = id, .name = "w" + std::to_string(id)}, .next_id = 9};
}

TEST(SettleTest, TheFirstWhoIsFurthestLeadsAndTheOthersAreBehind) {
  const Settlement settlement = settle(std::vector{at(8, 0), at(10, 3), at(9, 1), at(10, 2)});
  EXPECT_EQ(settlement.progress, 10);
  EXPECT_EQ(settlement.leader, 1);
  EXPECT_EQ(settlement.behind, (std::vector<int>{0, 2}));
  EXPECT_FALSE(settlement.unfinished);
  EXPECT_EQ(settlement.next_id, 9U);
}

TEST(SettleTest, AStepThatSomeOptimizerHasTakenIsCountedThoughItsReportsAreLost) {
  const Settlement settlement = settle(std::vector{at(8, 0), at(9, 1), at(9, 2)});
  EXPECT_TRUE(settlement.unfinished);
  EXPECT_EQ(settlement.progress, 10);
  EXPECT_EQ(settlement.leader, 1);
  EXPECT_EQ(settlement.behind, (std::vector<int>{0}));
}

TEST(SettleTest, NewcomersGetIdsThatNobodyHadAndAreBehind) {
  std::vector<ProgressReport> reports{at(ProgressReport::kNothing, 0), at(4, 0), at(ProgressReport::kNothing, 0)};
  reports[0].next_id = 1;  // as many as it knows, itself
  reports[2].self.name = "";
  const Settlement settlement = settle(reports);
  EXPECT_EQ(settlement.leader, 1);
  EXPECT_EQ(settlement.behind, (std::vector<int>{0, 2}));
  ASSERT_EQ(settlement.joined.size(), 2U);
  EXPECT_EQ(settlement.workers[0].id, 9U);
  EXPECT_EQ(settlement.workers[1].id, 0U);
  EXPECT_EQ(settlement.workers[2].id, 10U);
  EXPECT_EQ(settlement.workers[2].name, "worker-10");  // it has given itself none
  EXPECT_EQ(settlement.joined[1].name, "worker-10");
  EXPECT_EQ(settlement.next_id, 11U);
}

TEST(SettleTest, KnowsWhoRanOutOfMemoryAndWhoWasEvictedByAny) {
  std::vector<ProgressReport> reports{at(4, 0), at(4, 5)};
  reports[1].failed_batch = 12;
  reports[1].chunkable = true;
  reports[0].evicted = {3};
  reports[1].evicted = {2};
  const Settlement settlement = settle(reports);
  EXPECT_EQ(settlement.out_of_memory, (std::vector<MemoryFailure>{{.worker = 5, .batch = 12, .chunkable = true}}));
  EXPECT_EQ(settlement.evicted, (std::vector<WorkerId>{3, 2}));
}

TEST(SettleTest, MomentsCountOnlyIfAllHaveMeasuredThem) {
  std::vector<ProgressReport> reports{at(4, 0), at(4, 1)};
  reports[0].moments_known = true;
  EXPECT_FALSE(settle(reports).moments_known);
  reports[1].moments_known = true;
  EXPECT_TRUE(settle(reports).moments_known);
}

TEST(SettleTest, NewcomersAloneKnowNothing) {
  EXPECT_THROW((void)settle(std::vector{at(ProgressReport::kNothing, 0)}), InvariantError);
}

TEST(ProgressReportTest, SurvivesItsWay) {
  ProgressReport report = at(7, 2);
  report.self.min_batch = 3;
  report.self.max_batch = 9;
  report.self.granularity = 3;
  report.self.kind = "cuda";
  report.self.weight = 0.1;
  report.failed_batch = 5;
  report.moments_known = true;
  report.chunkable = true;
  report.evicted = {1, 4};
  report.clock = 1.0 / 3.0;
  const ProgressReport back = ProgressReport::decode(report.encode());
  EXPECT_EQ(back.progress, 7);
  EXPECT_TRUE(same_workers(std::vector{back.self}, std::vector{report.self}));
  EXPECT_EQ(back.self.name, "w2");
  EXPECT_EQ(back.failed_batch, 5);
  EXPECT_TRUE(back.moments_known);
  EXPECT_TRUE(back.chunkable);
  EXPECT_EQ(back.next_id, 9U);
  EXPECT_EQ(back.evicted, report.evicted);
  EXPECT_EQ(back.clock, report.clock);
  EXPECT_THROW((void)ProgressReport::decode("nonsense"), std::invalid_argument);
}

TEST(ProgressReportTest, AWorkerWithoutALimitKeepsNone) {
  ProgressReport report;
  EXPECT_GE(ProgressReport::decode(report.encode()).self.max_batch, std::int64_t{1} << 53U);
}

}  // namespace
}  // namespace isochron
