#include "isochron/core/sample/permutation.h"

#include <algorithm>
#include <bit>
#include <string>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

// With halves of fewer than three bits, eight rounds do not reach every permutation about equally often.
constexpr unsigned kLeastBits = 6;

constexpr std::uint64_t ones(unsigned bits) {
  return (std::uint64_t{1} << bits) - 1;
}

}  // namespace

Permutation::Permutation(std::int64_t size, std::uint64_t key) : size_(size) {
  require_at_least("permutation size", size, 1);
  const auto bits = std::max(kLeastBits, static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(size - 1))));
  low_bits_ = (bits + 1) / 2;
  low_mask_ = ones(low_bits_);
  high_mask_ = ones(bits - low_bits_);
  Random random({key});
  std::ranges::generate(keys_, [&] { return random.next(); });
}

std::int64_t Permutation::index_at(std::int64_t position) const {
  ISO_CHECK(position >= 0 && position < size_, "position " + std::to_string(position) + " is not in the permutation");
  auto word = static_cast<std::uint64_t>(position);
  do {
    word = forward(word);
  } while (word >= static_cast<std::uint64_t>(size_));
  return static_cast<std::int64_t>(word);
}

std::int64_t Permutation::position_of(std::int64_t index) const {
  ISO_CHECK(index >= 0 && index < size_, "index " + std::to_string(index) + " is not in the permutation");
  auto word = static_cast<std::uint64_t>(index);
  do {
    word = backward(word);
  } while (word >= static_cast<std::uint64_t>(size_));
  return static_cast<std::int64_t>(word);
}

std::uint64_t Permutation::forward(std::uint64_t word) const {
  std::uint64_t high = word >> low_bits_;
  std::uint64_t low = word & low_mask_;
  for (std::size_t round = 0; round < kRounds; round += 2) {
    high ^= mix64(low ^ keys_[round]) & high_mask_;
    low ^= mix64(high ^ keys_[round + 1]) & low_mask_;
  }
  return high << low_bits_ | low;
}

std::uint64_t Permutation::backward(std::uint64_t word) const {
  std::uint64_t high = word >> low_bits_;
  std::uint64_t low = word & low_mask_;
  for (std::size_t round = kRounds; round > 0; round -= 2) {
    low ^= mix64(high ^ keys_[round - 1]) & low_mask_;
    high ^= mix64(low ^ keys_[round - 2]) & high_mask_;
  }
  return high << low_bits_ | low;
}

}  // namespace isochron
