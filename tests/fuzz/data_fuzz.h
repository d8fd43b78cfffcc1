// What the fuzz targets of the data formats share: every sample can be read, or the file is refused by its name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "isochron/core/error.h"
#include "isochron/data/byte_source.h"
#include "isochron/data/dataset.h"

namespace isochron::data {

inline std::unique_ptr<ByteSource> fuzz_source(std::span<const std::uint8_t> bytes) {
  const auto stored = std::as_bytes(bytes);
  return in_memory("fuzz.bin", {stored.begin(), stored.end()});
}

/// `open` gives a dataset of the fuzzer's bytes.
template <class Open>
void check_dataset(const Open& open) {
  try {
    const std::unique_ptr<Dataset> dataset = open();
    ISO_CHECK(dataset->size() >= 1, "an empty dataset");
    std::vector<std::byte> sample(static_cast<std::size_t>(dataset->shape().bytes()));
    // Ends and beginning are enough of a large dataset.
    for (std::int64_t i = 0; i < std::min<std::int64_t>(dataset->size(), 16); ++i) {
      for (const std::int64_t index : {i, dataset->size() - 1 - i}) {
        const std::int64_t label = dataset->read(index, sample);
        ISO_CHECK(label >= kNoLabel && label < dataset->classes(), "a label that is no class");
      }
    }
  } catch (const std::invalid_argument& refusal) {
    ISO_CHECK(std::string_view(refusal.what()).starts_with("fuzz.bin: "), "a refusal without its file");
  }
}

}  // namespace isochron::data
