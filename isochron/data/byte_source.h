// A named run of bytes with random access: a file on disk, or memory.
//
// A file is not loaded but read where it is asked for, so that datasets may be larger than memory and the workers of
// one host share the page cache. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace isochron::data {

class ByteSource {
 public:
  ByteSource(std::string name, std::int64_t size) : name_(std::move(name)), size_(size) {}
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  virtual ~ByteSource() = default;

  /// What errors call it.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::int64_t size() const { return size_; }

  /// Fills `out` from `offset` on; all of it lies within size(). Throws isochron::Error naming the file if the system
  /// cannot read it or it has shrunk.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  virtual void read_within(std::int64_t offset, std::span<std::byte> out) const = 0;

  std::string name_;
  std::int64_t size_;
};

/// Throws isochron::Error naming the file and the system's reason unless it is a regular file that can be read.
std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path);
std::unique_ptr<ByteSource> in_memory(std::string name, std::vector<std::byte> bytes);

/// Throws std::invalid_argument: the bytes are not what the format asks for.
[[noreturn]] void refuse(const ByteSource& source, const std::string& found, const std::string& permitted);

}  // namespace isochron::data
