// A keyed permutation of 0 .. n - 1 with random access: position -> index and back, without a table.
//
// A Feistel network (Luby and Rackoff 1988) on the least number of bits that hold n - 1, at least 6, whose two halves
// may differ by a bit; an output of n or more goes round again ("cycle walking", Black and Rogaway 2002), which keeps
// it a bijection and takes fewer than 2 passes on average for n > 32. O(1) expected time and O(1) memory for any n;
// identical on every platform. For shuffling, not for cryptography. Immutable, so thread-safe.
#pragma once

#include <array>
#include <cstdint>

namespace isochron {

class Permutation {
 public:
  /// Throws std::invalid_argument unless size is 1 or more.
  Permutation(std::int64_t size, std::uint64_t key);

  [[nodiscard]] std::int64_t size() const { return size_; }

  /// Both take and give 0 .. size - 1.
  [[nodiscard]] std::int64_t index_at(std::int64_t position) const;
  [[nodiscard]] std::int64_t position_of(std::int64_t index) const;

 private:
  static constexpr std::size_t kRounds = 8;

  [[nodiscard]] std::uint64_t forward(std::uint64_t word) const;
  [[nodiscard]] std::uint64_t backward(std::uint64_t word) const;

  std::int64_t size_;
  unsigned low_bits_;
  std::uint64_t low_mask_;
  std::uint64_t high_mask_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace isochron
