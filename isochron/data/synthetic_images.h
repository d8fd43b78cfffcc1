// Images for tests, demonstrations and benchmarks: made on the fly, the same on every platform, and learnable.
//
// Each class has a pattern of 4 x 4 tiles per channel; a sample is its class's pattern under uniform noise. A sample is
// a pure function of (seed, stream, index), so any size costs no memory: O(bytes) time per sample. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "isochron/data/dataset.h"

namespace isochron::data {

struct SyntheticImageOptions {
  std::int64_t samples = 60'000;  // 1 to 2^53
  std::int64_t classes = 10;      // 1 to 1000
  std::int64_t channels = 1;      // 1 to 16
  std::int64_t height = 28;       // 1 to 1024
  std::int64_t width = 28;        // 1 to 1024
  std::int64_t noise = 64;        // largest deviation of a pixel from its pattern, 0 to 64 of 255
  std::uint64_t seed = 0;         // of the patterns: training and test data share it
  std::uint64_t stream = 0;       // of the samples: training and test data differ in it

  /// Throws std::invalid_argument naming the field, the value and what is permitted.
  void validate() const;
};

std::unique_ptr<Dataset> synthetic_images(const SyntheticImageOptions& options);

}  // namespace isochron::data
