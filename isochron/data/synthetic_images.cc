#include "isochron/data/synthetic_images.h"

#include <string_view>
#include <vector>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron::data {
namespace {

constexpr std::int64_t kTiles = 4;  // along each side
// Noise of up to 64 around a pattern keeps every pixel within a byte.
constexpr std::int64_t kMaxNoise = 64;
constexpr std::int64_t kDarkest = kMaxNoise;
constexpr std::int64_t kLevels = 256 - 2 * kMaxNoise;
// Purposes of the random streams of one seed.
constexpr std::uint64_t kPattern = 1;
constexpr std::uint64_t kImage = 2;

/// Eight small random numbers from each word of a generator.
class RandomBytes {
 public:
  explicit RandomBytes(Random random) : random_(random) {}

  std::int64_t below(std::int64_t bound) {  // bound <= 256; biased by less than one part in 256 / bound
    if (left_ == 0) {
      word_ = random_.next();
      left_ = 8;
    }
    const auto byte = static_cast<std::int64_t>(word_ & 0xffU);
    word_ >>= 8U;
    --left_;
    return byte * bound / 256;
  }

 private:
  Random random_;
  std::uint64_t word_ = 0;
  int left_ = 0;
};

class SyntheticImages final : public Dataset {
 public:
  explicit SyntheticImages(const SyntheticImageOptions& options)
      : options_(options), shape_{.sizes = {options.channels, options.height, options.width}} {
    Random random({options.seed, kPattern});
    tiles_.resize(static_cast<std::size_t>(options.classes * options.channels * kTiles * kTiles));
    for (std::int64_t& tile : tiles_) {
      tile = kDarkest + static_cast<std::int64_t>(random.below(kLevels));
    }
  }

  [[nodiscard]] std::int64_t size() const override { return options_.samples; }
  [[nodiscard]] const SampleShape& shape() const override { return shape_; }
  [[nodiscard]] std::int64_t classes() const override { return options_.classes; }

  std::int64_t read(std::int64_t index, std::span<std::byte> out) const override {
    check_read(index, out);
    Random random({options_.seed, kImage, options_.stream, static_cast<std::uint64_t>(index)});
    const auto label = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(options_.classes)));
    RandomBytes noise(random);
    auto pixel = out.begin();
    for (std::int64_t plane = label * options_.channels; plane < (label + 1) * options_.channels; ++plane) {
      for (std::int64_t y = 0; y < options_.height; ++y) {
        const std::int64_t row = (plane * kTiles + y * kTiles / options_.height) * kTiles;
        for (std::int64_t x = 0; x < options_.width; ++x) {
          const std::int64_t level = tiles_[static_cast<std::size_t>(row + x * kTiles / options_.width)];
          *pixel++ = static_cast<std::byte>(level - options_.noise + noise.below(2 * options_.noise + 1));
        }
      }
    }
    return label;
  }

 private:
  SyntheticImageOptions options_;
  SampleShape shape_;
  std::vector<std::int64_t> tiles_;  // class x channel x tile row x tile column
};

}  // namespace

void SyntheticImageOptions::validate() const {
  require_between("samples", samples, 1, std::int64_t{1} << 53U);
  require_between("classes", classes, 1, 1000);
  require_between("channels", channels, 1, 16);
  require_between("height", height, 1, 1024);
  require_between("width", width, 1, 1024);
  require_between("noise", noise, 0, kMaxNoise);
}

std::unique_ptr<Dataset> synthetic_images(const SyntheticImageOptions& options) {
  options.validate();
  return std::make_unique<SyntheticImages>(options);
}

}  // namespace isochron::data
