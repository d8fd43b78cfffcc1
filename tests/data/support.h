// Hand-made files for the readers' tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "isochron/data/byte_source.h"
#include "isochron/data/dataset.h"

namespace isochron::data {

using Bytes = std::vector<std::byte>;

inline Bytes bytes(std::initializer_list<int> values) {
  Bytes result;
  for (const int value : values) {
    result.push_back(static_cast<std::byte>(value));
  }
  return result;
}

inline Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// 0, 1, 2 ... modulo 251, a prime: rows and planes do not look alike.
inline Bytes counting(std::size_t count) {
  Bytes result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = static_cast<std::byte>(i % 251);
  }
  return result;
}

inline Bytes gzip(const Bytes& plain) {
  z_stream stream{};
  Bytes packed(plain.size() + 1024);
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  Bytes input = plain;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline Bytes sample_of(const Dataset& dataset, std::int64_t index, std::int64_t* label = nullptr) {
  Bytes sample(static_cast<std::size_t>(dataset.shape().bytes()));
  const std::int64_t read = dataset.read(index, sample);
  if (label != nullptr) {
    *label = read;
  }
  return sample;
}

/// The text of the std::invalid_argument that `action` throws.
template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

}  // namespace isochron::data
