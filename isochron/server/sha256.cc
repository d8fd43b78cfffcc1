#include "isochron/server/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace isochron::server {
namespace {

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
alignas(16) constexpr std::array<std::uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::byte* bytes) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    word = word << 8U | std::to_integer<std::uint32_t>(bytes[i]);
  }
  return word;
}

}  // namespace

Sha256::Sha256(bool fast) : compress_(fast && has_instructions() ? &compress_fast : &compress) {
}

void Sha256::update(std::span<const std::byte> bytes) {
  const std::size_t begun = size_ % kBlock;
  size_ += bytes.size();
  if (begun > 0) {
    const std::size_t count = std::min(kBlock - begun, bytes.size());
    std::ranges::copy(bytes.first(count), block_.begin() + static_cast<std::ptrdiff_t>(begun));
    bytes = bytes.subspan(count);
    if (begun + count < kBlock) {
      return;
    }
    compress_(state_, block_.data(), 1);
  }
  const std::size_t whole = bytes.size() / kBlock;
  if (whole > 0) {
    compress_(state_, bytes.data(), whole);
  }
  std::ranges::copy(bytes.subspan(whole * kBlock), block_.begin());
}

Sha256::Digest Sha256::finish() {
  constexpr std::size_t kLength = 8;  // bytes of the number of bits, at the end of the last block
  const std::uint64_t bits = 8 * size_;
  std::array<std::byte, 2 * kBlock> last{std::byte{0x80}};
  const std::size_t begun = size_ % kBlock;
  const std::size_t padding = (begun + 1 + kLength <= kBlock ? kBlock : 2 * kBlock) - begun;
  for (std::size_t i = 0; i < kLength; ++i) {
    last.at(padding - 1 - i) = static_cast<std::byte>(bits >> 8 * i);
  }
  update(std::span(last).first(padding));
  Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest.at(i) = static_cast<std::byte>(state_.at(i / 4) >> (24 - 8 * (i % 4)));
  }
  return digest;
}

void Sha256::compress(State& state, const std::byte* blocks, std::size_t count) {
  using std::rotr;
  for (; count > 0; --count, blocks += kBlock) {
    std::array<std::uint32_t, 64> words;
    for (std::size_t i = 0; i < 16; ++i) {
      words[i] = big_endian(blocks + 4 * i);
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = words[i - 15];
      const std::uint32_t b = words[i - 2];
      words[i] =
          words[i - 16] + words[i - 7] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3U) + (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10U);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t first =
          h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + words[i];
      const std::uint32_t second = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + first;
      d = c;
      c = b;
      b = a;
      a = first + second;
    }
    const State after{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state.size(); ++i) {
      state[i] += after[i];
    }
  }
}

#if defined(__x86_64__)

bool Sha256::has_instructions() {
  static const bool has = [] {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
  }();
  return has;
}

// Intel, "Intel SHA Extensions", 2013: the state lies in two registers as ABEF and CDGH, and four rounds are one step,
// for which the message's words lie in the register of that number modulo 4.
__attribute__((target("sha,sse4.1"))) void Sha256::compress_fast(
    State& state, const std::byte* blocks, std::size_t count) {
  const auto load = [](const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); };
  const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);  // big-endian words
  const __m128i badc = _mm_shuffle_epi32(load(state.data()), 0xb1);
  const __m128i hgfe = _mm_shuffle_epi32(load(&state[4]), 0x1b);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
  for (; count > 0; --count, blocks += kBlock) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i words[4];
    for (std::size_t i = 0; i < 4; ++i) {
      words[i] = _mm_shuffle_epi8(load(blocks + 16 * i), order);
    }
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) {
      __m128i& now = words[i % 4];
      const __m128i sum = _mm_add_epi32(now, load(&kRound[4 * i]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (i < 12) {
        const __m128i last = words[(i + 3) % 4];
        const __m128i shifted = _mm_alignr_epi8(last, words[(i + 2) % 4], 4);
        now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, words[(i + 1) % 4]), shifted), last);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data()), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[4]), _mm_alignr_epi8(dchg, feba, 8));
}

#else

bool Sha256::has_instructions() {
  return false;
}

void Sha256::compress_fast(State& state, const std::byte* blocks, std::size_t count) {
  compress(state, blocks, count);
}

#endif

}  // namespace isochron::server
