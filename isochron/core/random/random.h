// Random numbers that are the same on every platform and compiler.
//
// A generator is a pure function of its key words: `Random({seed, worker, step})` gives the same numbers wherever and
// in whatever order it is asked, so that several policies can be shown the same noise and a run can be repeated from
// any point. SplitMix64 (Steele et al., OOPSLA 2014) serves as mixer and as stream. O(1) state; not for cryptography.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace isochron {

/// A bijection on 64-bit words that spreads every input bit over the output.
constexpr std::uint64_t mix64(std::uint64_t word) {
  word += 0x9e3779b97f4a7c15U;
  word = (word ^ (word >> 30U)) * 0xbf58476d1ce4e5b9U;
  word = (word ^ (word >> 27U)) * 0x94d049bb133111ebU;
  return word ^ (word >> 31U);
}

/// A key for independent streams: the order of the words matters.
constexpr std::uint64_t mix_key(std::initializer_list<std::uint64_t> words) {
  std::uint64_t key = 0x6973'6f63'6872'6f6eU;
  for (const std::uint64_t word : words) {
    key = mix64(key ^ mix64(word));
  }
  return key;
}

class Random {
 public:
  explicit constexpr Random(std::initializer_list<std::uint64_t> key_words) : state_(mix_key(key_words)) {}

  constexpr std::uint64_t next() {
    const std::uint64_t word = mix64(state_);
    state_ += 0x9e3779b97f4a7c15U;
    return word;
  }

  /// Uniform on the open interval (0, 1): never 0, never 1, so that logarithms and quantiles of it are finite.
  constexpr double uniform() { return (static_cast<double>(next() >> 12U) + 0.5) * 0x1p-52; }

  /// Uniform on 0 .. bound - 1 without bias; bound >= 1.
  std::uint64_t below(std::uint64_t bound);

  /// Standard normal, by the quantile function: one uniform number a draw.
  double normal();

 private:
  std::uint64_t state_;
};

}  // namespace isochron
