#include "isochron/server/frame_seal.h"

#include <algorithm>
#include <bit>

#include "isochron/core/error.h"

namespace isochron::server {
namespace {

Sha256 begun_with(std::string_view key, std::byte pad) {
  std::array<std::byte, Sha256::kBlock> block;
  block.fill(pad);
  for (std::size_t i = 0; i < key.size(); ++i) {
    block.at(i) ^= static_cast<std::byte>(key[i]);
  }
  Sha256 hash;
  hash.update(block);
  return hash;
}

}  // namespace

FrameSeal::FrameSeal(std::string_view key)
    : inner_begin_(begun_with(key.substr(0, kKeySize), std::byte{0x36})),
      outer_begin_(begun_with(key.substr(0, kKeySize), std::byte{0x5c})) {
  ISO_CHECK(key.size() == kKeySize, "a key of another size");
  begin();
}

void FrameSeal::begin() {
  inner_ = inner_begin_;
  static_assert(std::endian::native == std::endian::little, "the number travels nowhere, but both must have the same");
  inner_.update(std::as_bytes(std::span(&number_, 1)));
  ++number_;
}

FrameSeal::Seal FrameSeal::finish() {
  const Sha256::Digest inner = inner_.finish();
  Sha256 outer = outer_begin_;
  outer.update(inner);
  const Sha256::Digest whole = outer.finish();
  Seal seal;
  std::ranges::copy(std::span(whole).first<kSize>(), seal.begin());
  begin();
  return seal;
}

FrameSeal::Seal FrameSeal::of(std::span<const std::byte> bytes) {
  update(bytes);
  return finish();
}

bool FrameSeal::is(const Seal& seal) {
  const Seal expected = finish();
  std::byte difference{0};
  for (std::size_t i = 0; i < kSize; ++i) {
    difference |= expected.at(i) ^ seal.at(i);
  }
  return difference == std::byte{0};
}

}  // namespace isochron::server
