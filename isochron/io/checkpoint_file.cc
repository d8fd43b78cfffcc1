#include "isochron/io/checkpoint_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include <zlib.h>

#include "isochron/core/error.h"
#include "isochron/io/output_file.h"

namespace isochron::io {
namespace {

static_assert(std::endian::native == std::endian::little, "contents are stored as they are in memory");

constexpr std::string_view kMagic = "ISOCKPT1";
constexpr std::size_t kFrontBytes = kMagic.size() + sizeof(std::uint64_t) + sizeof(std::uint32_t);
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{1} << 28U;
constexpr std::size_t kChunkBytes = std::size_t{1} << 20U;

std::uint32_t crc(std::uint32_t before, std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(before, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

std::uint32_t crc(std::span<const std::byte> bytes) {
  return crc(0, bytes);
}

std::string hexadecimal(std::uint32_t value) {
  std::array<char, 8> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr};
}

/// Errors show names, so they are printable.
bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

template <class Integer>
void put(std::string& out, Integer value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Length>
void put_text(std::string& out, std::string_view text) {
  ISO_CHECK(is_name(text) && text.size() <= std::numeric_limits<Length>::max(), "a name that cannot be stored");
  put(out, static_cast<Length>(text.size()));
  out += text;
}

/// Takes an index apart from its front.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> rest) : rest_(rest) {}

  [[nodiscard]] bool at_end() const { return rest_.empty(); }

  template <class Integer>
  Integer integer() {
    Integer value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  template <class Length>
  std::string text() {
    const auto bytes = take(integer<Length>());
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!is_name(text)) {
      throw Error("its index has a name that is empty or not printable");
    }
    return text;
  }

 private:
  std::span<const std::byte> take(std::size_t count) {
    if (count > rest_.size()) {
      throw Error("its index is cut short");
    }
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  std::span<const std::byte> rest_;
};

/// Nothing if there are more than an int64 can count. What a zero hides is counted too: strides are made of it.
std::optional<std::uint64_t> bytes_of(const PartLayout& layout) {
  std::int64_t product = layout.element_bytes;
  bool empty = false;
  for (const std::int64_t size : layout.sizes) {
    empty = empty || size == 0;
    if (size < 0 || __builtin_mul_overflow(product, std::max<std::int64_t>(size, 1), &product)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : static_cast<std::uint64_t>(product);
}

StoredPart decode_part(Decoder& decoder) {
  StoredPart part;
  part.name = decoder.text<std::uint16_t>();
  part.layout.type = decoder.text<std::uint8_t>();
  part.layout.element_bytes = decoder.integer<std::uint8_t>();
  part.layout.sizes.resize(decoder.integer<std::uint8_t>());
  for (std::int64_t& size : part.layout.sizes) {
    size = decoder.integer<std::int64_t>();
  }
  part.checksum = decoder.integer<std::uint32_t>();
  const auto bytes = bytes_of(part.layout);
  if (part.layout.element_bytes == 0 || !bytes) {
    throw Error("part '" + part.name + "' has impossible sizes");
  }
  part.bytes = *bytes;
  return part;
}

}  // namespace

std::vector<StoredPart> decode_index(std::span<const std::byte> index, std::optional<std::uint64_t> content_bytes) {
  const std::uint64_t most = content_bytes.value_or(std::numeric_limits<std::int64_t>::max());
  std::vector<StoredPart> parts;
  std::uint64_t end = 0;
  for (Decoder decoder(index); !decoder.at_end();) {
    StoredPart part = decode_part(decoder);
    if (!parts.empty() && part.name <= parts.back().name) {
      throw Error("part '" + part.name + "' is not in the order of names");
    }
    if (part.bytes > most - end) {
      throw Error("it is cut short: part '" + part.name + "' reaches beyond its end");
    }
    part.offset = end;
    end += part.bytes;
    parts.push_back(std::move(part));
  }
  if (content_bytes && end != *content_bytes) {
    throw Error(std::to_string(*content_bytes - end) + " bytes follow its last part");
  }
  return parts;
}

std::string encode_index(std::span<const StoredPart> parts) {
  std::string index;
  for (const StoredPart& part : parts) {
    put_text<std::uint16_t>(index, part.name);
    put_text<std::uint8_t>(index, part.layout.type);
    put(index, part.layout.element_bytes);
    ISO_CHECK(part.layout.sizes.size() <= std::numeric_limits<std::uint8_t>::max(), "too many dimensions");
    put(index, static_cast<std::uint8_t>(part.layout.sizes.size()));
    for (const std::int64_t size : part.layout.sizes) {
      put(index, size);
    }
    put(index, part.checksum);
  }
  return index;
}

void write_checkpoint_file(const std::filesystem::path& path, const std::map<std::string, PartContent>& parts) {
  OutputFile file(path);
  std::vector<StoredPart> stored;
  for (const auto& [name, content] : parts) {
    ISO_CHECK(bytes_of(content.layout) == content.bytes.size(), "part '" + name + "' is of another size than it says");
    stored.push_back({.name = name, .layout = content.layout, .checksum = crc(content.bytes)});
  }
  const std::string index = encode_index(stored);
  ISO_CHECK(index.size() <= kMostIndexBytes, "the index is too large");
  std::string front(kMagic);
  put(front, std::uint64_t{index.size()});
  put(front, crc(std::as_bytes(std::span(index))));
  file.write(std::as_bytes(std::span(front)));
  file.write(std::as_bytes(std::span(index)));
  for (const auto& [name, content] : parts) {
    file.write(content.bytes);
  }
  file.commit();
}

CheckpointReader::CheckpointReader(std::istream& stream, std::string name) : stream_(stream), name_(std::move(name)) {
  const auto end = static_cast<std::streamoff>(stream_.seekg(0, std::ios::end).tellg());
  stream_.seekg(0);
  if (!stream_ || end < 0) {
    fail("it is no file whose size is known");
  }
  std::array<std::byte, kFrontBytes> front{};
  read_bytes(front, "its front");
  if (std::memcmp(front.data(), kMagic.data(), kMagic.size()) != 0) {
    fail("it does not start with " + std::string(kMagic));
  }
  Decoder decoder{std::span(front).subspan(kMagic.size())};
  const auto index_bytes = decoder.integer<std::uint64_t>();
  const auto checksum = decoder.integer<std::uint32_t>();
  const auto behind_front = static_cast<std::uint64_t>(end) - kFrontBytes;
  if (index_bytes > std::min(behind_front, kMostIndexBytes)) {
    fail("its index would have " + std::to_string(index_bytes) + " bytes");
  }
  std::vector<std::byte> index(index_bytes);
  read_bytes(index, "its index");
  if (crc(index) != checksum) {
    fail("its index is damaged: checksum " + hexadecimal(crc(index)) + " instead of " + hexadecimal(checksum));
  }
  try {
    parts_ = decode_index(index, behind_front - index_bytes);
  } catch (const Error& error) {
    fail(error.what());
  }
  content_ = kFrontBytes + index_bytes;
}

void CheckpointReader::read(const StoredPart& part, std::span<std::byte> out) {
  ISO_CHECK(out.size() == part.bytes, "part '" + part.name + "' into memory of another size");
  stream_.seekg(static_cast<std::streamoff>(content_ + part.offset));
  read_bytes(out, "part '" + part.name + "'");
  check(part, crc(out));
}

void CheckpointReader::verify() {
  std::vector<std::byte> chunk(kChunkBytes);
  stream_.seekg(static_cast<std::streamoff>(content_));
  for (const StoredPart& part : parts_) {
    std::uint32_t checksum = 0;
    for (std::uint64_t left = part.bytes; left > 0;) {
      const auto bytes = std::span(chunk).first(std::min<std::uint64_t>(left, chunk.size()));
      read_bytes(bytes, "part '" + part.name + "'");
      checksum = crc(checksum, bytes);
      left -= bytes.size();
    }
    check(part, checksum);
  }
}

void CheckpointReader::read_bytes(std::span<std::byte> out, std::string_view what) {
  errno = 0;
  stream_.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
  if (!stream_) {
    const bool ended = stream_.eof();
    stream_.clear();
    fail(std::string(what) + (ended || errno == 0 ? " is cut short" : std::string(": ") + std::strerror(errno)));
  }
}

void CheckpointReader::check(const StoredPart& part, std::uint32_t checksum) const {
  if (checksum != part.checksum) {
    fail(
        "part '" + part.name + "' is damaged: checksum " + hexadecimal(checksum) + " instead of " +
        hexadecimal(part.checksum));
  }
}

void CheckpointReader::fail(const std::string& why) const {
  throw Error("cannot read checkpoint " + name_ + ": " + why);
}

}  // namespace isochron::io
