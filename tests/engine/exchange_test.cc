// Texts between two ranks, and lengths that no text has.
#include "isochron/engine/exchange.h"

#include <chrono>
#include <cstdint>
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
#include "isochron/engine/checkpoint_transfer.h"
#include "isochron/io/checkpoint_file.h"

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

TEST(CheckpointTransferTest, CarriesTextsAndTensorsAsTheyAre) {
  const Group group = make_world();
  const Checkpoint sent{
      .texts = {{"a text", "words\n"}, {"none", ""}},
      .tensors = {
          {"a", at::arange(6, at::kFloat).view({2, 3})}, {"b", at::ones({}, at::kLong)}, {"c", at::empty({0})}}};
  if (world_rank() == 0) {
    send_checkpoint(group, sent, 1);
    return;
  }
  const Checkpoint got = receive_checkpoint(group, 0);
  EXPECT_EQ(got.texts, sent.texts);
  ASSERT_EQ(got.tensors.size(), sent.tensors.size());
  for (const auto& [name, tensor] : sent.tensors) {
    ASSERT_TRUE(got.tensors.contains(name)) << name;
    EXPECT_TRUE(got.tensors.at(name).dtype() == tensor.dtype() && at::equal(got.tensors.at(name), tensor)) << name;
  }
}

// Sizes below 0, or of which several together are more than can be counted, and bytes that are none.
TEST(CheckpointTransferTest, RefusesAnOutlineThatIsNone) {
  const Group group = make_world();
  const auto outline = [](const std::vector<std::int64_t>& sizes) {
    return io::encode_index(std::vector<io::StoredPart>{
        {.name = "a", .layout = {.type = "uint8", .element_bytes = 1, .sizes = sizes}},
        {.name = "b", .layout = {.type = "uint8", .element_bytes = 1, .sizes = sizes}}});
  };
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::string& text : {outline({-1}), outline({most}), outline({most, most}), std::string("n a 0p+0")}) {
    if (world_rank() == 0) {
      send_text(group, text, 1);
    } else {
      EXPECT_NE(failure_of([&] { (void)receive_checkpoint(group, 0); }), "none");
    }
  }
}

}  // namespace
}  // namespace isochron
