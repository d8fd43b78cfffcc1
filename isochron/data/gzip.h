// Gzip files (RFC 1952) whose inflated size is known beforehand, as it is once a format's header was read.
//
// Nothing is inflated on trust: deflate shrinks at most 1032 to 1, so a header that promises more than the file can
// hold is refused before memory is taken. One member per file; the checksum is verified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "isochron/data/byte_source.h"

namespace isochron::data {

inline constexpr std::int64_t kMaxInflatedBytes = std::int64_t{8} << 30U;

/// Whether the bytes begin like a gzip file.
bool is_gzip(const ByteSource& source);

/// The first `bytes` inflated bytes, or all of them if there are fewer. Throws std::invalid_argument if they are
/// damaged.
std::vector<std::byte> gunzip_start(const ByteSource& source, std::size_t bytes);

/// The inflated bytes, exactly `bytes` of them. Throws std::invalid_argument if there are more or fewer, or on damage,
/// bytes behind the end or a wrong checksum.
std::vector<std::byte> gunzip(const ByteSource& source, std::int64_t bytes);

}  // namespace isochron::data
