// Frames as one who knows the keys of a connection would send them, whatever they are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "isochron/core/dispatch/bytes.h"
#include "isochron/server/frame_seal.h"
#include "isochron/server/sealed_frame.h"

namespace isochron::server {

inline LinkKeys test_keys() {
  return {.outgoing = std::string(FrameSeal::kKeySize, 'o'), .incoming = std::string(FrameSeal::kKeySize, 'i')};
}

inline std::string seal_of(FrameSeal& seal, std::string_view bytes) {
  const FrameSeal::Seal made = seal.of(std::as_bytes(std::span(bytes)));
  return {reinterpret_cast<const char*>(made.data()), made.size()};
}

// Heads and bodies, one after the other, with their seals. What is cut short at the end stays so.
inline std::string sealed(std::string_view frames, FrameSeal& seal) {
  std::string bytes;
  while (frames.size() >= FrameHead::kSize) {
    const std::string_view head = frames.substr(0, FrameHead::kSize);
    FrameHead parsed;
    ByteReader reader(head);
    reader(parsed.tag, parsed.length);
    bytes += head;
    bytes += seal_of(seal, head);
    const std::string_view body =
        frames.substr(head.size(), static_cast<std::size_t>(std::min<std::uint64_t>(parsed.length, frames.size())));
    bytes += body;
    if (!body.empty() && body.size() == parsed.length) {
      bytes += seal_of(seal, body);
    }
    frames.remove_prefix(head.size() + body.size());
  }
  return bytes.append(frames);
}

}  // namespace isochron::server
