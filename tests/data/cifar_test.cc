#include "isochron/data/cifar.h"

#include <utility>
#include <vector>

#include "support.h"
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

Bytes image(int first_byte) {
  Bytes pixels = counting(3072);
  pixels.front() = static_cast<std::byte>(first_byte);
  return pixels;
}

std::unique_ptr<Dataset> read(const std::vector<Bytes>& files, Cifar kind) {
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.reserve(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    sources.push_back(in_memory("batch_" + std::to_string(i + 1), files[i]));
  }
  return read_cifar(std::move(sources), kind);
}

std::string refusal_of(const std::vector<Bytes>& files, Cifar kind) {
  return refusal([&] { read(files, kind); });
}

TEST(CifarTest, ReadsRecordsAcrossFiles) {
  const Bytes first = bytes({3}) + image(100) + bytes({9}) + image(101);
  const Bytes second = bytes({0}) + image(102);
  const auto dataset = read({first, second}, Cifar::k10);
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->shape(), (SampleShape{.sizes = {3, 32, 32}}));
  EXPECT_EQ(dataset->classes(), 10);
  const std::vector<std::int64_t> expected = {3, 9, 0};
  for (int i = 0; i < 3; ++i) {
    std::int64_t label = -1;
    EXPECT_EQ(sample_of(*dataset, i, &label), image(100 + i));
    EXPECT_EQ(label, expected[static_cast<std::size_t>(i)]);
  }
}

TEST(CifarTest, TakesTheFineLabelOfCifar100) {
  const auto dataset = read({bytes({19, 99}) + image(5)}, Cifar::k100);
  EXPECT_EQ(dataset->classes(), 100);
  std::int64_t label = -1;
  EXPECT_EQ(sample_of(*dataset, 0, &label), image(5));
  EXPECT_EQ(label, 99);
}

TEST(CifarTest, RefusesBrokenRecords) {
  const Bytes record = bytes({3}) + image(0);
  EXPECT_EQ(
      refusal_of({record, record + bytes({1})}, Cifar::k10),
      "batch_2: it has 3074 bytes; permitted: records of 3073, 1 or more");
  EXPECT_EQ(refusal_of({Bytes{}}, Cifar::k10), "batch_1: it has 0 bytes; permitted: records of 3073, 1 or more");
  // CIFAR-10 is no CIFAR-100.
  EXPECT_EQ(refusal_of({record}, Cifar::k100), "batch_1: it has 3073 bytes; permitted: records of 3074, 1 or more");
  EXPECT_EQ(refusal_of({}, Cifar::k10), "the CIFAR dataset has 0 files; permitted: 1 or more");
}

TEST(CifarTest, RefusesLabelsOutOfRange) {
  const Bytes record = bytes({3}) + image(0);
  EXPECT_EQ(
      refusal_of({record + bytes({10}) + image(0)}, Cifar::k10),
      "batch_1: a label of record 1 is 10; permitted: 0 to 9");
  EXPECT_EQ(
      refusal_of({bytes({20, 5}) + image(0)}, Cifar::k100), "batch_1: a label of record 0 is 20; permitted: 0 to 19");
  EXPECT_EQ(
      refusal_of({bytes({5, 100}) + image(0)}, Cifar::k100), "batch_1: a label of record 0 is 100; permitted: 0 to 99");
}

TEST(CifarTest, NamesAFileThatCannotBeRead) {
  const std::vector<std::filesystem::path> files = {"no-such-file"};
  EXPECT_THROW(open_cifar(files, Cifar::k10), Error);
}

}  // namespace
}  // namespace isochron::data
