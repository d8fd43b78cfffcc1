// SHA-256 (FIPS 180-4), so that a link between workers needs no library for it. Where an x86 processor has instructions
// for it they are used, which is about seven times as fast. Pure; an object is of one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace isochron::server {

class Sha256 {
 public:
  static constexpr std::size_t kBlock = 64;  // bytes
  using Digest = std::array<std::byte, 32>;

  // `fast`: with the processor's instructions, where it has them. The digest is the same.
  explicit Sha256(bool fast = true);

  void update(std::span<const std::byte> bytes);
  // Of everything that came before; call nothing after it.
  [[nodiscard]] Digest finish();

 private:
  using State = std::array<std::uint32_t, 8>;
  using Compress = void (*)(State& state, const std::byte* blocks, std::size_t count);

  static void compress(State& state, const std::byte* blocks, std::size_t count);
  static void compress_fast(State& state, const std::byte* blocks, std::size_t count);
  static bool has_instructions();

  Compress compress_;
  State state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlock> block_{};  // begun
  std::uint64_t size_ = 0;                 // bytes so far
};

}  // namespace isochron::server
