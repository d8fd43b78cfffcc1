// Texts between two ranks, and lengths that no text has.
#include "isochron/engine/exchange.h"

#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/ranks/group.h"
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "isochron/comm/mpi_backend.h"
#include "isochron/core/error.h"

namespace isochron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::world_rank;

Group make_world() {
  return make_group(make_mpi_backend(MPI_COMM_WORLD, {.timeout = std::chrono::seconds(60)}));
}

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(ExchangeTest, CarriesTextsOfAnyLengthOrNone) {
  const Group group = make_world();
  const std::string mine = world_rank() == 0 ? "one" : "";
  EXPECT_THAT(all_gather(group, mine), ElementsAre("one", ""));
  EXPECT_EQ(broadcast(group, mine), "one");
  for (const std::string& text : {std::string(), std::string(100'000, 'x')}) {
    if (world_rank() == 0) {
      send_text(group, text, 1);
    } else {
      EXPECT_EQ(receive_text(group, 0), text);
    }
  }
}

// Whoever sends them: a defect, or one whose memory is damaged.
TEST(ExchangeTest, RefusesALengthBeforeAnyMemoryIsTakenForIt) {
  const Group group = make_world();
  for (const double length : {1e15, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    if (world_rank() == 1) {
      std::vector<at::Tensor> size{at::full({1}, length, at::kDouble)};
      group->send(size, 0, kTextTag)->wait();
    } else {
      EXPECT_THAT(failure_of([&] { (void)receive_text(group, 1); }), HasSubstr("a text of rank 1 would have "));
    }
  }
}

TEST(ExchangeTest, RefusesALongTextOnAllRanks) {
  const Group group = make_world();
  const std::string text(world_rank() == 0 ? static_cast<std::size_t>(kMostText) + 1 : 1, 'x');
  const std::string refusal = "a text of rank 0 would have 268435457 bytes; permitted: up to 268435456";
  EXPECT_EQ(failure_of([&] { (void)all_gather(group, text); }), refusal);
  EXPECT_EQ(failure_of([&] { (void)broadcast(group, text); }), refusal);
  const auto hand_on = [&] { world_rank() == 0 ? send_text(group, text, 1) : (void)receive_text(group, 0); };
  EXPECT_EQ(failure_of(hand_on), refusal);
  EXPECT_THAT(all_gather(group, "still"), ElementsAre("still", "still")) << "the group is as it was";
}

}  // namespace
}  // namespace isochron
