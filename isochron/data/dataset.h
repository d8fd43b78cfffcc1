// Training data with random access: any sample at any time, into memory of the caller.
//
// Samples have one shape, or are sequences up to one length, and are handed out as they are stored (bytes of pixels,
// little-endian tokens); turning them into floating point is the business of the loader (augment.h). A dataset is
// immutable once opened: read() may be called from any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace isochron::data {

enum class Element : std::uint8_t { kUint8, kUint16, kUint32 };

struct SampleShape {
  Element element = Element::kUint8;
  std::vector<std::int64_t> sizes;  // channels, height, width of an image; tokens of a sequence

  bool operator==(const SampleShape&) const = default;
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t bytes() const;
};

/// The label of samples that are their own target, such as sequences of tokens.
inline constexpr std::int64_t kNoLabel = -1;

class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;  // samples, 1 or more
  [[nodiscard]] virtual const SampleShape& shape() const = 0;
  /// Labels are 0 .. classes() - 1; without labels, tokens are.
  [[nodiscard]] virtual std::int64_t classes() const = 0;

  /// For sequences of unequal length: how many tokens of each sample are predicted, which is one less than it has, 1 or
  /// more. read() fills up the rest of shape() with zeros. Empty: all are as long as shape() says.
  [[nodiscard]] virtual std::span<const std::int32_t> lengths() const { return {}; }

  /// Writes sample `index`, 0 .. size() - 1, to `out`, which is shape().bytes() long, and returns its label. Throws
  /// isochron::Error naming the file if it cannot be read any more.
  virtual std::int64_t read(std::int64_t index, std::span<std::byte> out) const = 0;

 protected:
  /// The contract of read().
  void check_read(std::int64_t index, std::span<const std::byte> out) const;
};

}  // namespace isochron::data
