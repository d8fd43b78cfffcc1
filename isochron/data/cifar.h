// The binary format of CIFAR-10 and CIFAR-100 (Krizhevsky 2009): records without a header.
//
// A record is one label (CIFAR-10), or a coarse and a fine one (CIFAR-100), and 3 x 32 x 32 bytes of red, green and
// blue planes. A dataset may be spread over several files. Images stay on disk; the labels, the fine ones of CIFAR-100,
// are checked when the files are opened and held in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "isochron/data/byte_source.h"
#include "isochron/data/dataset.h"

namespace isochron::data {

enum class Cifar : std::uint8_t { k10, k100 };

/// Throws std::invalid_argument naming the file, what was found and what is permitted: no file, a size that is no
/// positive multiple of a record's, a label out of range.
std::unique_ptr<Dataset> read_cifar(std::vector<std::unique_ptr<ByteSource>> files, Cifar kind);

/// The same from files; throws isochron::Error if one of them cannot be read.
std::unique_ptr<Dataset> open_cifar(std::span<const std::filesystem::path> files, Cifar kind);

}  // namespace isochron::data
