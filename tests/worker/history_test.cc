#include "isochron/worker/history.h"

#include <variant>
#include <vector>

#include <gtest/gtest.h>

namespace isochron::worker {
namespace {

std::vector<std::int64_t> steps_since(const History& history, std::int64_t& known) {
  std::vector<std::int64_t> steps;
  known = history.for_each_since(
      known, [&steps](const io::RunLogLine& line) { steps.push_back(std::get<StepRecord>(line).step); });
  return steps;
}

TEST(HistoryTest, GivesEveryLineOnce) {
  History history;
  std::int64_t known = 0;
  history.add(StepRecord{.step = 1});
  history.add(StepRecord{.step = 2});
  EXPECT_EQ(steps_since(history, known), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(steps_since(history, known), (std::vector<std::int64_t>{}));
  history.add(StepRecord{.step = 3});
  EXPECT_EQ(steps_since(history, known), (std::vector<std::int64_t>{3}));
}

TEST(HistoryTest, KeepsTheNewestOnly) {
  History history;
  constexpr std::int64_t kLines = 10'000;
  for (std::int64_t step = 0; step < kLines; ++step) {
    history.add(StepRecord{.step = step});
  }
  std::int64_t known = 0;
  const auto steps = steps_since(history, known);
  EXPECT_EQ(steps.size(), History::kMost);
  EXPECT_EQ(steps.back(), kLines - 1);
}

}  // namespace
}  // namespace isochron::worker
