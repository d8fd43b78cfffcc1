// The step protocol as a whole: whatever happens to the workers of a job, those that are left are equal, and every
// sample is used exactly once per epoch.
#include <cstdint>
#include <map>
#include <string>

#include "tests/replica/schedule.h"
#include "tests/sanitized.h"
#include <gtest/gtest.h>

namespace isochron {
namespace {

// Under a sanitizer a tenth of the schedules reaches every line.
constexpr std::uint64_t kSchedules = kSanitized ? 1'000 : 10'000;

TEST(ReplicaScheduleTest, SurvivorsAreEqualAndEverySampleIsUsedOnceInTenThousandRandomSchedules) {
  for (std::uint64_t seed = 0; seed < kSchedules; ++seed) {
    const std::string failure = failure_of_schedule(seed);
    ASSERT_EQ(failure, "");
  }
}

TEST(ReplicaScheduleTest, EveryKindOfFaultHappens) {
  std::map<std::string, std::int64_t> counts;
  std::int64_t steps = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Schedule schedule(seed, 1 << 20);
    schedule.run();
    steps += schedule.steps();
    for (const auto& [what, count] : schedule.counts()) {
      counts[what] += count;
    }
  }
  EXPECT_GT(steps, 1000);
  for (const char* const what :
       {"join",
        "death while computing",
        "death after reports",
        "out of memory",
        "redo",
        "flipped digest",
        "lost reports",
        "interrupted recovery",
        "save",
        "resume",
        "roll back",
        "left out",
        "diagnosis",
        "bounds",
        "epoch left early",
        "other data",
        "calls out of order"}) {
    EXPECT_GT(counts[what], 10) << what;
  }
}

TEST(ReplicaScheduleTest, AFailingScheduleIsCutToItsShortestPrefix) {
  std::string failure;
  std::uint64_t seed = 0;
  while (failure.empty()) {
    ASSERT_LT(seed, 100U);
    failure = failure_of_schedule(seed++, Sabotage::kStaleTransfer);
  }
  EXPECT_NE(failure.find("the models differ\nin Schedule(" + std::to_string(seed - 1)), std::string::npos) << failure;
}

}  // namespace
}  // namespace isochron
