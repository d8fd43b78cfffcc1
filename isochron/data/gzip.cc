#include "isochron/data/gzip.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>

#include <zlib.h>

namespace isochron::data {
namespace {

constexpr std::int64_t kMaxRatio = 1032;  // zlib's technical notes: no deflate stream does better
constexpr std::size_t kChunkBytes = std::size_t{64} << 10U;
constexpr std::size_t kMaxOutputBytes = std::size_t{1} << 30U;  // of one call: zlib counts in 32 bits
constexpr int kGzipWindow = 15 + 16;                            // the largest window, with gzip's header and trailer

class Inflater {
 public:
  explicit Inflater(const ByteSource& source) : source_(source) {
    if (inflateInit2(&stream_, kGzipWindow) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  /// Fills `out` as far as the stream goes; returns how far.
  std::size_t read(std::span<std::byte> out) {
    std::size_t filled = 0;
    while (filled < out.size() && !ended_) {
      refill();
      const std::size_t room = std::min(out.size() - filled, kMaxOutputBytes);
      // zlib takes bytes as unsigned char.
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
      stream_.avail_out = static_cast<uInt>(room);
      step();
      filled += room - stream_.avail_out;
    }
    return filled;
  }

  /// Whether the end of the stream is the end of the file.
  [[nodiscard]] bool consumed_all() const { return ended_ && offset_ == source_.size() && stream_.avail_in == 0; }

 private:
  void refill() {
    if (stream_.avail_in != 0) {
      return;
    }
    const auto count = std::min(static_cast<std::int64_t>(kChunkBytes), source_.size() - offset_);
    source_.read(offset_, std::span(chunk_).first(static_cast<std::size_t>(count)));
    offset_ += count;
    stream_.next_in = reinterpret_cast<Bytef*>(chunk_.data());
    stream_.avail_in = static_cast<uInt>(count);
  }

  void step() {
    const int status = inflate(&stream_, Z_NO_FLUSH);
    ended_ = status == Z_STREAM_END;
    if (status == Z_BUF_ERROR) {  // no input is left, and no progress without it
      refuse(source_, "the gzip file ends early", "a complete one");
    }
    if (status != Z_OK && status != Z_STREAM_END) {
      const std::string reason = stream_.msg != nullptr ? stream_.msg : "error " + std::to_string(status);
      refuse(source_, "the gzip file is damaged (" + reason + ")", "an intact one");
    }
  }

  const ByteSource& source_;
  z_stream stream_{};
  std::array<std::byte, kChunkBytes> chunk_{};
  std::int64_t offset_ = 0;  // of the bytes that were not given to zlib yet
  bool ended_ = false;
};

}  // namespace

bool is_gzip(const ByteSource& source) {
  std::array<std::byte, 2> magic{};
  if (source.size() < std::ssize(magic)) {
    return false;
  }
  source.read(0, magic);
  return magic == std::array{std::byte{0x1f}, std::byte{0x8b}};
}

std::vector<std::byte> gunzip_start(const ByteSource& source, std::size_t bytes) {
  std::vector<std::byte> start(bytes);
  start.resize(Inflater(source).read(start));
  return start;
}

std::vector<std::byte> gunzip(const ByteSource& source, std::int64_t bytes) {
  const std::int64_t most = std::min(kMaxInflatedBytes, source.size() * kMaxRatio);
  if (bytes > most) {
    refuse(
        source,
        "the header promises " + std::to_string(bytes) + " bytes inflated",
        "at most " + std::to_string(most) + " from a gzip file of " + std::to_string(source.size()));
  }
  std::vector<std::byte> inflated(static_cast<std::size_t>(bytes));
  Inflater inflater(source);
  const std::size_t filled = inflater.read(inflated);
  std::byte one_more{};
  if (filled != inflated.size() || inflater.read({&one_more, 1}) != 0) {
    const std::string found = filled < inflated.size() ? std::to_string(filled) : "more than " + std::to_string(filled);
    refuse(source, "it has " + found + " bytes inflated", "the " + std::to_string(bytes) + " its header promises");
  }
  if (!inflater.consumed_all()) {
    refuse(source, "bytes follow the end of the gzip file", "one member and nothing behind it");
  }
  return inflated;
}

}  // namespace isochron::data
