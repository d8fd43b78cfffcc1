#include "isochron/core/trace/utf8.h"

#include <cstddef>

namespace isochron {
namespace {

/// What a lead byte says of its sequence. The range of the second byte excludes overlong forms and surrogates.
struct Lead {
  std::size_t length = 0;  // of the sequence in bytes; 0: no lead byte
  unsigned char second_low = 0x80;
  unsigned char second_high = 0xBF;
};

Lead classify(unsigned char byte) {
  if (byte < 0x80) {
    return {.length = 1};
  }
  if (byte >= 0xC2 && byte <= 0xDF) {
    return {.length = 2};
  }
  if (byte >= 0xE0 && byte <= 0xEF) {
    return {
        .length = 3,
        .second_low = static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
        .second_high = static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte >= 0xF0 && byte <= 0xF4) {
    return {
        .length = 4,
        .second_low = static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
        .second_high = static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {};
}

/// Length of the well-formed sequence at the start of `text`; 0 if there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = classify(byte(0));
  if (lead.length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < lead.length; ++i) {
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte(i) < low || byte(i) > high) {
      return 0;
    }
  }
  return lead.length;
}

}  // namespace

std::string to_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    result += length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

}  // namespace isochron
