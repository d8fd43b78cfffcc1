// The seals of one direction of a connection: what has not the right one was changed, repeated, left out, put elsewhere
// or sent back on its way, or its sender does not know the key.
//
// A seal is the first 16 bytes of HMAC-SHA256 (RFC 2104) over the number of the seal, from 0, and what is sealed. Each
// direction of each connection has a key of its own, so that a number never comes twice under one key. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "isochron/server/sha256.h"

namespace isochron::server {

class FrameSeal {
 public:
  static constexpr std::size_t kKeySize = 32;  // bytes
  static constexpr std::size_t kSize = 16;
  using Seal = std::array<std::byte, kSize>;

  // Throws isochron::InvariantError if the key has another size.
  explicit FrameSeal(std::string_view key);

  void update(std::span<const std::byte> bytes) { inner_.update(bytes); }
  // Of the updates since the last seal.
  [[nodiscard]] Seal finish();
  // The same of these bytes alone.
  [[nodiscard]] Seal of(std::span<const std::byte> bytes);
  // Whether that is the seal of the updates; takes the same time whichever byte differs.
  [[nodiscard]] bool is(const Seal& seal);

 private:
  void begin();

  Sha256 inner_begin_;
  Sha256 outer_begin_;
  Sha256 inner_;
  std::uint64_t number_ = 0;
};

// The keys of a connection, 32 bytes each: the other end has them the other way round.
struct LinkKeys {
  std::string outgoing;
  std::string incoming;
};

}  // namespace isochron::server
