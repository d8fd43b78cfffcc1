#include "isochron/data/idx.h"

#include <cstdint>
#include <filesystem>
#include <map>

#include "support.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

Bytes image_header(int count, int height, int width) {
  return bytes({0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, height, 0, 0, 0, width});
}

// Three images of 2 x 4 pixels, labels 7, 0, 9.
const Bytes kImages = image_header(3, 2, 4) + counting(24);
const Bytes kLabels = bytes({0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9});

std::unique_ptr<Dataset> read(const Bytes& images, const Bytes& labels, std::int64_t classes = 10) {
  return read_idx(in_memory("images", images), in_memory("labels", labels), classes);
}

std::string refusal_of(const Bytes& images, const Bytes& labels, std::int64_t classes = 10) {
  return refusal([&] { read(images, labels, classes); });
}

void expect_the_three_images(const Dataset& dataset) {
  ASSERT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.shape(), (SampleShape{.sizes = {1, 2, 4}}));
  EXPECT_EQ(dataset.classes(), 10);
  std::int64_t label = 0;
  EXPECT_EQ(sample_of(dataset, 2, &label), bytes({16, 17, 18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(label, 9);
  EXPECT_EQ(sample_of(dataset, 0, &label), bytes({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(label, 7);
}

TEST(IdxTest, ReadsAnyImageWithItsLabel) {
  expect_the_three_images(*read(kImages, kLabels));
}

TEST(IdxTest, ReadsGzip) {
  expect_the_three_images(*read(gzip(kImages), gzip(kLabels)));
  expect_the_three_images(*read(gzip(kImages), kLabels));
}

TEST(IdxTest, RefusesAnotherMagicNumber) {
  EXPECT_EQ(
      refusal_of(kLabels + Bytes(8), kLabels),
      "images: magic number 0x00000801; permitted: magic number 0x00000803 (unsigned bytes in 3 dimensions)");
  EXPECT_THAT(refusal_of(kImages, kImages), testing::StartsWith("labels: magic number 0x00000803; permitted: "));
  // Floats (type 0x0d) are not read.
  EXPECT_THAT(
      refusal_of(bytes({0, 0, 13, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}), kLabels),
      testing::StartsWith("images: magic number 0x00000d03"));
}

TEST(IdxTest, RefusesAHeaderThatIsCutShort) {
  for (std::size_t length = 0; length < 16; ++length) {
    const Bytes start(kImages.begin(), kImages.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THAT(
        refusal_of(start, kLabels),
        testing::StartsWith("images: it has " + std::to_string(length) + " bytes; permitted: an IDX header"));
    EXPECT_THAT(refusal_of(gzip(start), kLabels), testing::HasSubstr("permitted: an IDX header"));
  }
}

TEST(IdxTest, RefusesMissingAndTrailingBytes) {
  Bytes shorter = kImages;
  shorter.pop_back();
  EXPECT_EQ(refusal_of(shorter, kLabels), "images: it has 39 bytes; permitted: the 40 its header promises");
  EXPECT_EQ(
      refusal_of(kImages + bytes({0}), kLabels), "images: it has 41 bytes; permitted: the 40 its header promises");
  EXPECT_EQ(
      refusal_of(gzip(shorter), kLabels), "images: it has 39 bytes inflated; permitted: the 40 its header promises");
  EXPECT_EQ(
      refusal_of(gzip(kImages + bytes({0})), kLabels),
      "images: it has more than 40 bytes inflated; permitted: the 40 its header promises");
}

TEST(IdxTest, RefusesEmptyAndAbsurdDimensions) {
  EXPECT_EQ(refusal_of(image_header(0, 2, 4), kLabels), "images: dimension 0 is 0; permitted: 1 or more");
  EXPECT_EQ(refusal_of(image_header(3, 0, 4), kLabels), "images: dimension 1 is 0; permitted: 1 to 16384");
  const Bytes wide = bytes({0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 64, 1});  // 64 * 256 + 1
  EXPECT_EQ(refusal_of(wide, kLabels), "images: dimension 2 is 16385; permitted: 1 to 16384");
}

TEST(IdxTest, RefusesWhatCannotBeInflatedBeforeMemoryIsTaken) {
  // (2^32 - 1) images of 2^14 x 2^14: 2^60 - 2^28 bytes and the header's 16, in a file of some 40 bytes.
  const Bytes bomb = gzip(bytes({0, 0, 8, 3, 255, 255, 255, 255, 0, 0, 64, 0, 0, 0, 64, 0}));
  EXPECT_EQ(
      refusal_of(bomb, kLabels),
      "images: the header promises 1152921504338411536 bytes inflated; permitted: at most " +
          std::to_string(bomb.size() * 1032) + " from a gzip file of " + std::to_string(bomb.size()));
  // One image of 2^28 bytes is within every limit but that of deflate.
  const Bytes empty = gzip(bytes({0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 64, 0, 0, 0, 64, 0}));
  EXPECT_THAT(refusal_of(empty, kLabels), testing::StartsWith("images: the header promises 268435472 bytes inflated"));
}

TEST(IdxTest, RefusesDamagedGzip) {
  const Bytes good = gzip(kImages);
  Bytes wrong_checksum = good;
  wrong_checksum[good.size() - 8] ^= std::byte{1};
  EXPECT_EQ(
      refusal_of(wrong_checksum, kLabels),
      "images: the gzip file is damaged (incorrect data check); permitted: an intact one");
  EXPECT_EQ(
      refusal_of(good + bytes({0}), kLabels),
      "images: bytes follow the end of the gzip file; permitted: one member and nothing behind it");
  Bytes cut = good;
  cut.pop_back();
  EXPECT_EQ(refusal_of(cut, kLabels), "images: the gzip file ends early; permitted: a complete one");
  EXPECT_THAT(refusal_of(bytes({0x1f, 0x8b, 9}), kLabels), testing::StartsWith("images: the gzip file "));
}

TEST(IdxTest, RefusesLabelsThatDoNotMatch) {
  EXPECT_EQ(
      refusal_of(kImages, bytes({0, 0, 8, 1, 0, 0, 0, 2, 7, 0})),
      "labels: it has 2 labels; permitted: one for each of the 3 images of images");
  EXPECT_EQ(refusal_of(kImages, kLabels, 9), "labels: label 2 is 9; permitted: 0 to 8");
  EXPECT_EQ(refusal_of(kImages, kLabels, 257), "classes is 257; permitted: 1 to 256");
}

TEST(IdxTest, NamesAFileThatCannotBeRead) {
  EXPECT_THROW(open_idx("no-such-file", "no-such-file"), Error);
}

// The distribution's own files: 6000 training images of each of the ten kinds of clothing.
TEST(IdxTest, ReadsFashionMnist) {
  const std::filesystem::path folder = "/usr/share/datasets/fashion-mnist";
  if (!exists(folder)) {
    GTEST_SKIP() << "the Debian package dataset-fashion-mnist is not installed";
  }
  const auto dataset = open_idx(folder / "train-images-idx3-ubyte.gz", folder / "train-labels-idx1-ubyte.gz");
  ASSERT_EQ(dataset->size(), 60'000);
  EXPECT_EQ(dataset->shape(), (SampleShape{.sizes = {1, 28, 28}}));
  std::map<std::int64_t, int> labels;
  double sum = 0.0;
  Bytes sample(784);
  for (std::int64_t i = 0; i < dataset->size(); ++i) {
    ++labels[dataset->read(i, sample)];
    for (const std::byte pixel : sample) {
      sum += std::to_integer<int>(pixel);
    }
  }
  EXPECT_EQ(labels.size(), 10U);
  for (const auto& [label, count] : labels) {
    EXPECT_EQ(count, 6000) << label;
  }
  EXPECT_NEAR(sum / 255.0 / 784.0 / 60'000.0, 0.2860, 5e-5);  // the mean that is customary for this dataset
}

}  // namespace
}  // namespace isochron::data
