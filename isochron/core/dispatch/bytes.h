// Structs as bytes and back: the one codec of what workers, shards and the coordinator send each other.
//
// A struct lists its fields once, in a function `exchange(wire, value)` or a member `exchange(wire)`; the writer and
// the reader go through the same list, so the two directions cannot drift apart. Numbers lie little-endian in their own
// width, texts and lists have a count of 4 bytes in front. Bytes that are no such struct throw isochron::Error,
// whatever they are: no count is believed beyond the bytes that are there. Pure.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "isochron/core/error.h"

namespace isochron {

static_assert(std::endian::native == std::endian::little, "numbers travel as they lie in memory");

class ByteWriter {
 public:
  static constexpr bool kReads = false;

  template <class... Fields>
  void operator()(const Fields&... fields) {
    (write(fields), ...);
  }
  std::string& bytes() { return bytes_; }

 private:
  template <class T>
  void write(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else if constexpr (requires { const_cast<T&>(value).exchange(*this); }) {
      const_cast<T&>(value).exchange(*this);
    } else {
      exchange(*this, const_cast<T&>(value));
    }
  }
  void write(const std::string& text) {
    write(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
  }
  template <class T>
  void write(const std::vector<T>& list) {
    write(static_cast<std::uint32_t>(list.size()));
    for (const T& entry : list) {
      write(entry);
    }
  }

  std::string bytes_;
};

class ByteReader {
 public:
  static constexpr bool kReads = true;

  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  template <class... Fields>
  void operator()(Fields&... fields) {
    (read(fields), ...);
  }
  /// All bytes were read.
  void finish() const { require(left_.empty(), "bytes are left over"); }
  static void require(bool condition, const char* what) {
    if (!condition) {
      throw Error(std::string("a message cannot be read: ") + what);
    }
  }

 private:
  std::string_view take(std::size_t size) {
    require(size <= left_.size(), "it is cut short");
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  template <class T>
  void read(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      const char byte = take(1).front();
      require(byte == 0 || byte == 1, "a truth value is neither 0 nor 1");
      value = byte == 1;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      std::memcpy(&value, take(sizeof value).data(), sizeof value);
    } else if constexpr (requires { value.exchange(*this); }) {
      value.exchange(*this);
    } else {
      exchange(*this, value);
    }
  }
  std::size_t count() {
    std::uint32_t count = 0;
    read(count);
    require(count <= left_.size(), "it is cut short");  // every entry has a byte at least
    return count;
  }
  void read(std::string& text) { text = take(count()); }
  template <class T>
  void read(std::vector<T>& list) {
    list.clear();
    for (std::size_t left = count(); left > 0; --left) {
      read(list.emplace_back());
    }
  }

  std::string_view left_;
};

template <class Message>
[[nodiscard]] std::string encode(const Message& message) {
  ByteWriter writer;
  writer(message);
  return std::move(writer.bytes());
}

template <class Message>
[[nodiscard]] Message decode(std::string_view bytes) {
  ByteReader reader(bytes);  // NOLINT(misc-const-correctness): reading moves it on
  Message message;
  reader(message);
  reader.finish();
  return message;
}

}  // namespace isochron
