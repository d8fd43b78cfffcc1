// The format of checkpoint files: named parts, each an array of elements, with checksums and without any code.
//
// Layout, integers little-endian:
//   8 bytes   "ISOCKPT1"
//   u64, u32  size of the index in bytes, and its CRC-32
//   index     for every part, in the order of their names: u16 and the name; u8 and the name of the element type; u8
//             bytes of an element; u8 dimensions; u64 for each of them; u32 CRC-32 of the content
//   content   of the parts, in the same order, without gaps
//
// Whatever the bytes, the answer is what was written or isochron::Error naming the file and what is wrong with it.
// Sizes are compared with the file's before memory is taken. The types mean nothing here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isochron::io {

struct PartLayout {
  std::string type;                 // of an element: 1 to 255 printable characters
  std::uint8_t element_bytes = 1;   // 1 or more
  std::vector<std::int64_t> sizes;  // 0 or more each; none: one element

  bool operator==(const PartLayout&) const = default;
};

/// A part as the index lists it.
struct StoredPart {
  std::string name;  // 1 to 65,535 printable characters
  PartLayout layout;
  std::uint32_t checksum = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // from the first byte of the content

  bool operator==(const StoredPart&) const = default;
};

struct PartContent {
  PartLayout layout;
  std::span<const std::byte> bytes;
};

/// Whole or not at all (output_file.h). Throws isochron::Error naming the file if it cannot be written.
void write_checkpoint_file(const std::filesystem::path& path, const std::map<std::string, PartContent>& parts);

class CheckpointReader {
 public:
  /// Reads the index. `name` is what errors call the stream, which must outlive this.
  CheckpointReader(std::istream& stream, std::string name);

  [[nodiscard]] const std::vector<StoredPart>& parts() const { return parts_; }

  /// Fills `out`, which is part.bytes long, and compares its checksum.
  void read(const StoredPart& part, std::span<std::byte> out);
  /// Compares every checksum; takes no more than 1 MiB of memory.
  void verify();

 private:
  void read_bytes(std::span<std::byte> out, std::string_view what);
  void check(const StoredPart& part, std::uint32_t checksum) const;
  [[noreturn]] void fail(const std::string& why) const;

  std::istream& stream_;
  std::string name_;
  std::vector<StoredPart> parts_;
  std::uint64_t content_ = 0;  // offset in the file
};

/// The parts of an index, whose contents take `content_bytes` together; none: not known, and no more than an int64 can
/// count. Throws isochron::Error saying what is wrong.
[[nodiscard]] std::vector<StoredPart> decode_index(
    std::span<const std::byte> index, std::optional<std::uint64_t> content_bytes);
/// Its inverse.
[[nodiscard]] std::string encode_index(std::span<const StoredPart> parts);

}  // namespace isochron::io
