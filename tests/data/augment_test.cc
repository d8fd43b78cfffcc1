#include "isochron/data/augment.h"

#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "support.h"
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace isochron::data {
namespace {

SampleShape image_shape(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return {.sizes = {channels, height, width}};
}

std::vector<float> render(const Augment& augment, const View& view, const Bytes& image) {
  std::vector<float> out(image.size());
  augment.render(view, image, out);
  return out;
}

// Bytes over 255 with a deviation of 1/255 are the bytes themselves, up to rounding.
const AugmentOptions kAsBytes{.deviation = {1.0 / 255.0}};

std::vector<float> seen(const View& view) {
  // 1 2 3
  // 4 5 6
  const Augment augment(image_shape(1, 2, 3), kAsBytes);
  std::vector<float> out = render(augment, view, bytes({1, 2, 3, 4, 5, 6}));
  for (float& value : out) {
    value = std::round(value);
  }
  return out;
}

TEST(AugmentTest, ShowsTheImageShiftedAndMirrored) {
  EXPECT_EQ(seen({}), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(seen({.flipped = true}), (std::vector<float>{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(seen({.down = 1}), (std::vector<float>{4, 5, 6, 0, 0, 0}));
  EXPECT_EQ(seen({.down = -1, .right = 1}), (std::vector<float>{0, 0, 0, 2, 3, 0}));
  EXPECT_EQ(seen({.right = -2}), (std::vector<float>{0, 0, 1, 0, 0, 4}));
  EXPECT_EQ(seen({.flipped = true, .right = -2}), (std::vector<float>{1, 0, 0, 4, 0, 0}));
  EXPECT_EQ(seen({.down = 1, .right = 9}), (std::vector<float>(6, 0.0F)));
  EXPECT_EQ(seen({.down = -7, .right = -9}), (std::vector<float>(6, 0.0F)));
}

TEST(AugmentTest, NormalisesEachChannel) {
  const Augment augment(image_shape(2, 1, 2), {.mean = {0.5, 0.2}, .deviation = {0.5, 0.1}});
  // (0 - .5) / .5, (1 - .5) / .5; (51/255 - .2) / .1, (102/255 - .2) / .1
  const std::vector<float> out = render(augment, {}, bytes({0, 255, 51, 102}));
  EXPECT_FLOAT_EQ(out[0], -1.0F);
  EXPECT_FLOAT_EQ(out[1], 1.0F);
  EXPECT_NEAR(out[2], 0.0F, 1e-6F);
  EXPECT_FLOAT_EQ(out[3], 2.0F);
}

TEST(AugmentTest, PadsWithBlackBeforeItNormalises) {
  const Augment augment(image_shape(1, 1, 2), {.mean = {0.5}, .deviation = {0.25}});
  EXPECT_EQ(render(augment, {.right = 1}, bytes({255, 255})), (std::vector<float>{2.0F, -2.0F}));
}

TEST(AugmentTest, DrawsEveryViewEquallyOften) {
  const Augment augment(image_shape(1, 8, 8), {.flip = true, .crop_padding = 1});
  std::map<std::tuple<bool, std::int64_t, std::int64_t>, int> counts;
  for (std::int64_t position = 0; position < 18'000; ++position) {
    const View view = augment.view_at(0, position);
    ++counts[{view.flipped, view.down, view.right}];
  }
  EXPECT_EQ(counts.size(), 18U);  // 2 x 3 x 3
  for (const auto& [view, count] : counts) {
    EXPECT_NEAR(count, 1000, 160);  // five standard deviations of 31
  }
}

TEST(AugmentTest, LeavesImagesAloneUnlessAsked) {
  const Augment augment(image_shape(1, 8, 8), {});
  EXPECT_EQ(augment.view_at(3, 14), View{});
}

RC_GTEST_PROP(AugmentTest, ViewDependsOnSeedEpochAndPositionAlone, (std::uint64_t seed)) {
  const auto epoch = *rc::gen::inRange<std::int64_t>(0, 1000);
  const auto position = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
  const AugmentOptions options{.flip = true, .crop_padding = 64, .seed = seed};
  const Augment one(image_shape(1, 8, 8), options);
  const Augment other(image_shape(3, 32, 32), options);
  (void)other.view_at(epoch, position + 1);
  RC_ASSERT(one.view_at(epoch, position) == other.view_at(epoch, position));
  // Eight views of 2 * 129 * 129: all alike once in 33282^7 draws.
  std::set<std::tuple<bool, std::int64_t, std::int64_t>> views;
  for (std::int64_t later = 0; later < 8; ++later) {
    const View view = one.view_at(epoch + later, position);
    views.insert({view.flipped, view.down, view.right});
  }
  RC_ASSERT(views.size() > 1U);
}

RC_GTEST_PROP(AugmentTest, ShiftsAndFlipsArePixelsOfTheImage, (bool flipped)) {
  const auto height = *rc::gen::inRange<std::int64_t>(1, 9);
  const auto width = *rc::gen::inRange<std::int64_t>(1, 9);
  const View view{
      .flipped = flipped,
      .down = *rc::gen::inRange<std::int64_t>(-9, 10),
      .right = *rc::gen::inRange<std::int64_t>(-9, 10)};
  const Augment augment(image_shape(2, height, width), {});
  const Bytes image = counting(static_cast<std::size_t>(2 * height * width));
  const std::vector<float> out = render(augment, view, image);
  for (std::int64_t i = 0; i < std::ssize(out); ++i) {
    const std::int64_t channel = i / (height * width);
    const std::int64_t y = i / width % height + view.down;
    const std::int64_t column = flipped ? width - 1 - i % width : i % width;
    const std::int64_t x = column + view.right;
    const bool inside = y >= 0 && y < height && x >= 0 && x < width;
    const auto pixel = inside ? image[static_cast<std::size_t>((channel * height + y) * width + x)] : std::byte{0};
    RC_ASSERT(out[static_cast<std::size_t>(i)] == static_cast<float>(std::to_integer<int>(pixel) / 255.0));
  }
}

TEST(AugmentTest, RefusesOptionsOutOfRange) {
  const auto refusal_of = [](const SampleShape& shape, const AugmentOptions& options) {
    return refusal([&] { Augment(shape, options); });
  };
  const SampleShape shape = image_shape(3, 8, 8);
  EXPECT_EQ(refusal_of(shape, {.crop_padding = 65}), "crop padding is 65; permitted: 0 to 64");
  EXPECT_EQ(refusal_of(shape, {.mean = {0, 0}}), "mean has 2 numbers; permitted: 1 or 3, one a channel");
  EXPECT_EQ(refusal_of(shape, {.deviation = {1, 0, 1}}), "deviation is 0; permitted: a positive finite number");
  EXPECT_EQ(
      refusal_of(shape, {.mean = {std::numeric_limits<double>::infinity()}}),
      "mean is inf; permitted: a finite number");
  EXPECT_EQ(
      refusal_of({.element = Element::kUint16, .sizes = {65}}, {}),
      "the sample has 1 dimensions of 2 bytes; permitted: 3 of 1 byte, an image");
}

}  // namespace
}  // namespace isochron::data
