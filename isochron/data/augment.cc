#include "isochron/data/augment.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

constexpr std::int64_t kMaxPadding = 64;

void check_shape(const SampleShape& shape) {
  if (shape.element != Element::kUint8 || shape.sizes.size() != 3) {
    throw std::invalid_argument(
        "the sample has " + std::to_string(shape.sizes.size()) + " dimensions of " +
        std::to_string(shape.bytes() / shape.elements()) + " bytes; permitted: 3 of 1 byte, an image");
  }
}

/// One number per channel.
std::vector<double> per_channel(const char* field, std::vector<double> values, std::size_t channels) {
  if (values.size() == 1) {
    values.resize(channels, values.front());
  }
  if (values.size() != channels) {
    throw std::invalid_argument(
        std::string(field) + " has " + std::to_string(values.size()) + " numbers; permitted: 1 or " +
        std::to_string(channels) + ", one a channel");
  }
  return values;
}

}  // namespace

View draw_view(const AugmentOptions& options, Random& random) {
  View view;
  if (options.crop_padding > 0) {
    const auto offsets = static_cast<std::uint64_t>(2 * options.crop_padding + 1);
    view.down = static_cast<std::int64_t>(random.below(offsets)) - options.crop_padding;
    view.right = static_cast<std::int64_t>(random.below(offsets)) - options.crop_padding;
  }
  view.flipped = options.flip && random.below(2) == 1;
  return view;
}

Augment::Augment(SampleShape shape, AugmentOptions options) : shape_(std::move(shape)), options_(std::move(options)) {
  check_shape(shape_);
  require_between("crop padding", options_.crop_padding, 0, kMaxPadding);
  const auto channels = static_cast<std::size_t>(shape_.sizes[0]);
  const std::vector<double> mean = per_channel("mean", options_.mean, channels);
  const std::vector<double> deviation = per_channel("deviation", options_.deviation, channels);
  tables_.resize(channels);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    require(std::isfinite(mean[channel]), "mean", mean[channel], "a finite number");
    const bool positive = std::isfinite(deviation[channel]) && deviation[channel] > 0;
    require(positive, "deviation", deviation[channel], "a positive finite number");
    for (std::size_t byte = 0; byte < tables_[channel].size(); ++byte) {
      tables_[channel][byte] =
          static_cast<float>((static_cast<double>(byte) / 255.0 - mean[channel]) / deviation[channel]);
    }
  }
}

View Augment::view_at(std::int64_t epoch, std::int64_t position) const {
  Random random({options_.seed, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(position)});
  return draw_view(options_, random);
}

void Augment::render(const View& view, std::span<const std::byte> image, std::span<float> out) const {
  ISO_CHECK(std::ssize(image) == shape_.bytes() && image.size() == out.size(), "an image of another size");
  const std::int64_t height = shape_.sizes[1];
  const std::int64_t width = shape_.sizes[2];
  // Columns of the result that show the image; none if it was shifted out of sight.
  const std::int64_t first = std::clamp<std::int64_t>(-view.right, 0, width);
  const std::int64_t last = std::clamp<std::int64_t>(width - view.right, first, width);
  auto row = out.begin();
  for (std::size_t channel = 0; channel < tables_.size(); ++channel) {
    const Table& table = tables_[channel];
    const auto plane = image.begin() + static_cast<std::int64_t>(channel) * height * width;
    for (std::int64_t y = view.down; y < view.down + height; ++y, row += width) {
      std::fill_n(row, width, table[0]);
      if (y >= 0 && y < height && first < last) {
        const auto source = plane + (y * width + first + view.right);
        std::transform(source, source + (last - first), row + first, [&](std::byte pixel) {
          return table[std::to_integer<std::size_t>(pixel)];
        });
      }
      if (view.flipped) {
        std::reverse(row, row + width);
      }
    }
  }
}

}  // namespace isochron::data
