#include "isochron/data/idx.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "isochron/core/error.h"
#include "isochron/data/gzip.h"

namespace isochron::data {
namespace {

// 2^14 squared times 2^32 images is below 2^63: products of dimensions within the limits cannot overflow.
constexpr std::int64_t kMaxSide = std::int64_t{1} << 14U;
constexpr std::int64_t kMaxClasses = 256;  // a label is a byte
constexpr std::uint32_t kUnsignedBytes = 0x08;

struct Idx {
  std::vector<std::int64_t> sizes;
  std::int64_t header_bytes = 0;
  std::unique_ptr<ByteSource> bytes;  // inflated if need be
};

std::uint32_t big_endian(std::span<const std::byte> bytes, std::size_t word) {
  std::uint32_t value = 0;
  for (const std::byte byte : bytes.subspan(4 * word, 4)) {
    value = (value << 8U) | std::to_integer<std::uint32_t>(byte);
  }
  return value;
}

std::string hex(std::uint32_t word) {
  std::array<char, 11> text{};
  std::snprintf(text.data(), text.size(), "0x%08x", word);
  return text.data();
}

std::vector<std::byte> read_start(const ByteSource& source, bool gzip, std::size_t bytes) {
  if (gzip) {
    return gunzip_start(source, bytes);
  }
  std::vector<std::byte> start(std::min(bytes, static_cast<std::size_t>(source.size())));
  source.read(0, start);
  return start;
}

/// The dimensions, each of them and so their product within the limits.
std::vector<std::int64_t> parse_header(const ByteSource& source, std::span<const std::byte> header, std::size_t rank) {
  const std::uint32_t magic = (kUnsignedBytes << 8U) | static_cast<std::uint32_t>(rank);
  const std::string expected =
      "magic number " + hex(magic) + " (unsigned bytes in " + std::to_string(rank) + " dimensions)";
  if (header.size() < 4 * (rank + 1)) {
    refuse(source, "it has " + std::to_string(header.size()) + " bytes", "an IDX header with " + expected);
  }
  if (big_endian(header, 0) != magic) {
    refuse(source, "magic number " + hex(big_endian(header, 0)), expected);
  }
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < rank; ++i) {
    sizes.push_back(big_endian(header, i + 1));
    const bool count = i == 0;
    if (sizes.back() == 0 || (!count && sizes.back() > kMaxSide)) {
      const std::string range = count ? "1 or more" : "1 to " + std::to_string(kMaxSide);
      refuse(source, "dimension " + std::to_string(i) + " is " + std::to_string(sizes.back()), range);
    }
  }
  return sizes;
}

Idx parse(std::unique_ptr<ByteSource> source, std::size_t rank) {
  Idx idx{.header_bytes = static_cast<std::int64_t>(4 * (rank + 1))};
  const bool gzip = is_gzip(*source);
  idx.sizes = parse_header(*source, read_start(*source, gzip, 4 * (rank + 1)), rank);
  std::int64_t bytes = 1;
  for (const std::int64_t size : idx.sizes) {
    bytes *= size;
  }
  bytes += idx.header_bytes;
  if (gzip) {
    idx.bytes = in_memory(source->name(), gunzip(*source, bytes));
  } else if (source->size() == bytes) {
    idx.bytes = std::move(source);
  } else {
    refuse(
        *source,
        "it has " + std::to_string(source->size()) + " bytes",
        "the " + std::to_string(bytes) + " its header promises");
  }
  return idx;
}

class IdxDataset final : public Dataset {
 public:
  IdxDataset(Idx images, std::vector<std::byte> labels, std::int64_t classes)
      : images_(std::move(images)),
        labels_(std::move(labels)),
        classes_(classes),
        shape_{.sizes = {1, images_.sizes[1], images_.sizes[2]}} {}

  [[nodiscard]] std::int64_t size() const override { return images_.sizes[0]; }
  [[nodiscard]] const SampleShape& shape() const override { return shape_; }
  [[nodiscard]] std::int64_t classes() const override { return classes_; }

  std::int64_t read(std::int64_t index, std::span<std::byte> out) const override {
    check_read(index, out);
    images_.bytes->read(images_.header_bytes + index * shape_.bytes(), out);
    return std::to_integer<std::int64_t>(labels_[static_cast<std::size_t>(index)]);
  }

 private:
  Idx images_;
  std::vector<std::byte> labels_;
  std::int64_t classes_;
  SampleShape shape_;
};

/// The labels, each of them below `classes`.
std::vector<std::byte> read_labels(const Idx& idx, std::int64_t classes) {
  std::vector<std::byte> labels(static_cast<std::size_t>(idx.sizes[0]));
  idx.bytes->read(idx.header_bytes, labels);
  const auto wrong =
      std::ranges::find_if(labels, [&](std::byte label) { return std::to_integer<std::int64_t>(label) >= classes; });
  if (wrong != labels.end()) {
    refuse(
        *idx.bytes,
        "label " + std::to_string(wrong - labels.begin()) + " is " + std::to_string(std::to_integer<int>(*wrong)),
        "0 to " + std::to_string(classes - 1));
  }
  return labels;
}

}  // namespace

std::unique_ptr<Dataset> read_idx(
    std::unique_ptr<ByteSource> images, std::unique_ptr<ByteSource> labels, std::int64_t classes) {
  require_between("classes", classes, 1, kMaxClasses);
  Idx image_idx = parse(std::move(images), 3);
  const Idx label_idx = parse(std::move(labels), 1);
  if (label_idx.sizes[0] != image_idx.sizes[0]) {
    refuse(
        *label_idx.bytes,
        "it has " + std::to_string(label_idx.sizes[0]) + " labels",
        "one for each of the " + std::to_string(image_idx.sizes[0]) + " images of " + image_idx.bytes->name());
  }
  return std::make_unique<IdxDataset>(std::move(image_idx), read_labels(label_idx, classes), classes);
}

std::unique_ptr<Dataset> open_idx(
    const std::filesystem::path& images, const std::filesystem::path& labels, std::int64_t classes) {
  return read_idx(open_file(images), open_file(labels), classes);
}

}  // namespace isochron::data
