// The IDX format of MNIST and its relatives: images in one file, labels in another, plain or gzip'ed.
//
// A file is a big-endian header (two zero bytes, the element type, the number of dimensions, then each of them in 32
// bits) and the elements, nothing else. Read are unsigned bytes: N x height x width images and N labels. Plain images
// stay on disk; gzip'ed ones and labels are held in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "isochron/data/byte_source.h"
#include "isochron/data/dataset.h"

namespace isochron::data {

/// Throws std::invalid_argument naming the file, what was found and what is permitted: another magic number, a size
/// that the header does not announce, sides of 0 or more than 16384, no images, fewer or more labels than images, a
/// label of `classes` or more, a damaged gzip file. Nothing is allocated for elements before the sizes are known to be
/// there.
std::unique_ptr<Dataset> read_idx(
    std::unique_ptr<ByteSource> images, std::unique_ptr<ByteSource> labels, std::int64_t classes = 10);

/// The same from files; throws isochron::Error if one of them cannot be read.
std::unique_ptr<Dataset> open_idx(
    const std::filesystem::path& images, const std::filesystem::path& labels, std::int64_t classes = 10);

}  // namespace isochron::data
