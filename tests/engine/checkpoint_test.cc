#include "isochron/engine/checkpoint.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/own_path.h"
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"
#include "isochron/io/checkpoint_file.h"

namespace isochron {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] Checkpoint round_trip(const Checkpoint& checkpoint) const {
    write_checkpoint(folder_ / "a.ckpt", checkpoint);
    return read_checkpoint(folder_ / "a.ckpt");
  }
  void write_steps(std::initializer_list<std::int64_t> steps) const {
    for (const std::int64_t step : steps) {
      write_checkpoint(checkpoint_path(folder_, step), {.texts = {{"step", std::to_string(step)}}});
    }
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }

  const fs::path folder_ = own_path();
};

void expect_same_bits(const at::Tensor& one, const at::Tensor& other) {
  ASSERT_EQ(one.scalar_type(), other.scalar_type());
  ASSERT_EQ(one.sizes(), other.sizes());
  EXPECT_TRUE(one.nbytes() == 0 || std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) == 0);
}

TEST_F(CheckpointTest, KeepsEveryBitOfEveryElementType) {
  Checkpoint written;
  // Random bits are NaNs, infinities and denormals too.
  const at::Tensor bits = at::randint(0, 256, {3, 4 * 16}, at::kByte);
  for (const at::ScalarType type :
       {at::kByte,
        at::kUInt16,
        at::kUInt32,
        at::kUInt64,
        at::kChar,
        at::kShort,
        at::kInt,
        at::kLong,
        at::kFloat8_e4m3fn,
        at::kFloat8_e5m2,
        at::kHalf,
        at::kBFloat16,
        at::kFloat,
        at::kDouble,
        at::kComplexFloat,
        at::kComplexDouble}) {
    written.tensors[c10::toString(type)] = bits.view(type);
  }
  written.tensors["bool"] = bits > 128;
  const Checkpoint read = round_trip(written);
  ASSERT_EQ(read.tensors.size(), 17U);
  for (const auto& [name, tensor] : written.tensors) {
    SCOPED_TRACE(name);
    expect_same_bits(tensor, read.tensors.at(name));
  }
}

TEST_F(CheckpointTest, KeepsShapesOfAllKindsAndTexts) {
  const Checkpoint written{
      .texts = {{"none", ""}, {"bytes", std::string("\0\n\xFF", 3)}},
      .tensors = {
          {"scalar", at::scalar_tensor(2.5)},
          {"empty", at::empty({0, 5}, at::kHalf)},
          {"transposed", at::arange(6).view({2, 3}).t()},
          {"part", at::arange(10).slice(0, 3, 9, 2)},
          {"needs gradients", at::ones({2}).requires_grad_()}}};
  const Checkpoint read = round_trip(written);
  EXPECT_EQ(read.texts, written.texts);
  ASSERT_EQ(read.tensors.size(), written.tensors.size());
  for (const auto& [name, tensor] : written.tensors) {
    SCOPED_TRACE(name);
    expect_same_bits(tensor.detach().contiguous(), read.tensors.at(name));
    EXPECT_FALSE(read.tensors.at(name).requires_grad());
  }
}

TEST_F(CheckpointTest, RefusesWhatIsNoPlainTensor) {
  EXPECT_THROW((void)round_trip({.tensors = {{"x", at::ones({2}).to_sparse()}}}), std::invalid_argument);
}

TEST_F(CheckpointTest, RefusesElementTypesItDoesNotKnow) {
  const std::string content = "abcd";
  const auto read = [&](const std::string& type, std::uint8_t element_bytes) -> std::string {
    io::write_checkpoint_file(
        folder_ / "a.ckpt",
        {{"x",
          {.layout = {.type = type, .element_bytes = element_bytes, .sizes = {4 / element_bytes}},
           .bytes = std::as_bytes(std::span(content))}}});
    try {
      (void)read_checkpoint(folder_ / "a.ckpt");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(read("float31", 4), HasSubstr("a.ckpt: part 'x' is of the unknown type float31"));
  EXPECT_THAT(read("float32", 2), HasSubstr("unknown type float32"));
  EXPECT_EQ(read("float32", 4), "");
}

TEST_F(CheckpointTest, NamesAFileThatIsNotThere) {
  try {
    (void)read_checkpoint(folder_ / "none.ckpt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "cannot read checkpoint " + (folder_ / "none.ckpt").string() + ": No such file or directory");
  }
}

TEST_F(CheckpointTest, FindsTheNewestWholeOneAndSaysWhatItPassedOver) {
  EXPECT_EQ(latest_checkpoint(folder_ / "none"), std::nullopt);
  EXPECT_EQ(latest_checkpoint(folder_), std::nullopt);
  write_steps({9, 10, 1'000'000'000, 2'000'000'000});
  std::ofstream(folder_ / "step-000000300.ckpt.tmp") << "not one of them";
  std::ofstream(folder_ / "step-x.ckpt") << "nor this";
  EXPECT_EQ(latest_checkpoint(folder_), checkpoint_path(folder_, 2'000'000'000));

  // The last byte belongs to the last part.
  fs::resize_file(checkpoint_path(folder_, 2'000'000'000), fs::file_size(checkpoint_path(folder_, 2'000'000'000)) - 1);
  std::fstream(checkpoint_path(folder_, 1'000'000'000), std::ios::in | std::ios::out | std::ios::ate)
      .seekp(-1, std::ios::end)
      .put('x');
  std::vector<std::string> warnings;
  const auto found = latest_checkpoint(folder_, [&](const std::string& words) { warnings.push_back(words); });
  EXPECT_EQ(found, folder_ / "step-000000010.ckpt");
  EXPECT_THAT(
      warnings,
      ElementsAre(
          HasSubstr("step-2000000000.ckpt: it is cut short"),
          HasSubstr("step-1000000000.ckpt: part 'step' is damaged")));
}

TEST_F(CheckpointTest, SaysWhetherThereIsOneOfAStepOrLater) {
  EXPECT_FALSE(has_checkpoint_from(folder_ / "none", 0));
  EXPECT_FALSE(has_checkpoint_from(folder_, 0));
  write_steps({9, 1'000'000'000});
  std::ofstream(folder_ / "step-x.ckpt") << "none of them";
  EXPECT_TRUE(has_checkpoint_from(folder_, 1'000'000'000));
  EXPECT_FALSE(has_checkpoint_from(folder_, 1'000'000'001));
}

TEST_F(CheckpointTest, RemovesAllButTheNewest) {
  write_steps({1, 20, 3, 1'000'000'000});
  std::ofstream(folder_ / "notes.txt") << "mine";
  remove_old_checkpoints(folder_, 2);
  EXPECT_THAT(names(), ElementsAre("notes.txt", "step-000000020.ckpt", "step-1000000000.ckpt"));
}

}  // namespace
}  // namespace isochron
