#include "isochron/server/knowledge.h"

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::server {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Knowledge example() {
  UpdateRecord record{.step = 3, .epoch = 1, .position = 90, .words = "even"};
  record.worker = {.id = 2, .batch = 10};
  return {
      .trains = true,
      .at_barrier = true,
      .barrier_position = 100,
      .worker = 1,
      .holds_first = 40,
      .holds_last = 60,
      .rounds = 2,
      .pulled_at = 0.5,
      .chunks = {0, 3},
      .arrivals = {{.worker = 2, .iteration = 4, .epoch = 1, .first = 60, .last = 100}},
      .records = {record},
      .learning = "n a 0p+0\n"};
}

TEST(KnowledgeTest, IsReadAsItWasWritten) {
  const std::string bytes = encode(example());
  EXPECT_EQ(encode(decode<Knowledge>(bytes)), bytes);
  EXPECT_NO_THROW(require_possible(decode<Knowledge>(bytes), 4, 100));
  EXPECT_NO_THROW(require_possible({}, 0, 0));
}

// They index chunks and positions.
TEST(KnowledgeTest, IsRefusedIfItsNumbersAreBeyondTheJob) {
  const std::vector<std::function<void(Knowledge&)>> changes{
      [](Knowledge& one) { one.chunks.push_back(4); },
      [](Knowledge& one) { one.chunks.push_back(-1); },
      [](Knowledge& one) { one.barrier_position = 101; },
      [](Knowledge& one) { one.holds_last = 39; },
      [](Knowledge& one) { one.holds_first = -1; },
      [](Knowledge& one) { one.rounds = -1; },
      [](Knowledge& one) { one.arrivals.front().last = kMost; },
      [](Knowledge& one) { one.records.front().position = 91; },
      [](Knowledge& one) { one.records.front().position = kMost; },
      [](Knowledge& one) { one.records.front().worker.batch = kMost; },
      [](Knowledge& one) { one.records.front().worker.batch = -1; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Knowledge knowledge = example();
    changes[i](knowledge);
    EXPECT_THROW(require_possible(knowledge, 4, 100), Error) << i;
  }
}

TEST(KnowledgeTest, CountsThatCannotBeAddedUpAreRefused) {
  const auto counts = [](std::int64_t sent, std::int64_t applied) {
    const std::array<std::int64_t, 2> numbers{sent, applied};
    return decode<UpdateCounts>({reinterpret_cast<const char*>(numbers.data()), sizeof numbers});
  };
  EXPECT_EQ(counts(3, 2).applied, 2);
  EXPECT_THROW((void)counts(kMost, kMost), Error);
  EXPECT_THROW((void)counts(-1, 0), Error);
}

}  // namespace
}  // namespace isochron::server
