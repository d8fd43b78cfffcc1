#include "isochron/core/trace/json.h"

#include <charconv>
#include <cmath>

#include "isochron/core/trace/utf8.h"

namespace isochron {
namespace {

void append_escaped(std::string& text, char c) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (c == '"' || c == '\\') {
    text += '\\';
    text += c;
  } else if (c == '\n') {
    text += "\\n";
  } else if (byte < 0x20) {
    text += "\\u00";
    text += kHexDigits[byte >> 4U];
    text += kHexDigits[byte & 0xFU];
  } else {
    text += c;
  }
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : to_utf8(text)) {
    append_escaped(result, c);
  }
  return result + '"';
}

std::string json_number(double value) {
  if (!std::isfinite(value)) {
    return "null";
  }
  char buffer[32];  // the longest shortest form, -2.2250738585072014e-308, has 24 characters
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

JsonObject& JsonObject::raw(std::string_view key, std::string_view value) {
  if (text_.size() > 1) {
    text_ += ',';
  }
  text_.append(json_string(key)).append(":").append(value);
  return *this;
}

}  // namespace isochron
