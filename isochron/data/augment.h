// Images from bytes to floating point, changed at random on the way: shifted (a crop after padding), flipped,
// normalised.
//
// What happens to a sample is a function of (seed, epoch, position) alone, so training sees the same images whichever
// worker or thread prepares them, and again after a restart. One pass over the image. Immutable, so thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/random/random.h"
#include "isochron/data/dataset.h"

namespace isochron::data {

struct AugmentOptions {
  bool flip = false;              // left to right, every other image on average
  std::int64_t crop_padding = 0;  // black pixels added on all sides before a crop of the old size; 0 (no crop) to 64
  // (pixel / 255 - mean) / deviation: one number for all channels, or one for each. Deviations are positive.
  std::vector<double> mean = {0.0};
  std::vector<double> deviation = {1.0};
  std::uint64_t seed = 0;
};

/// How one image is seen: row y and column x of the result show row y + down, column x + right of the image, mirrored
/// afterwards if flipped; outside of the image it is black.
struct View {
  bool flipped = false;
  std::int64_t down = 0;
  std::int64_t right = 0;

  bool operator==(const View&) const = default;
};

View draw_view(const AugmentOptions& options, Random& random);

class Augment {
 public:
  /// Throws std::invalid_argument naming the field, the value and what is permitted; the shape is one of bytes in
  /// channels, height and width.
  Augment(SampleShape shape, AugmentOptions options);

  /// The view of the sample at a position of an epoch.
  [[nodiscard]] View view_at(std::int64_t epoch, std::int64_t position) const;

  /// Renders `image`, shape().bytes() long, into as many numbers, in the same order.
  void render(const View& view, std::span<const std::byte> image, std::span<float> out) const;

  [[nodiscard]] const SampleShape& shape() const { return shape_; }

 private:
  using Table = std::array<float, 256>;  // the normalised value of each byte

  SampleShape shape_;
  AugmentOptions options_;
  std::vector<Table> tables_;  // one a channel
};

}  // namespace isochron::data
