// Just enough JSON to write records: text and numbers, and objects field by field.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace isochron {

/// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

/// The shortest decimal text that reads back as the same number; "null" for NaN and infinities.
std::string json_number(double value);

/// One object, its fields in the order they are added.
class JsonObject {
 public:
  JsonObject& text(std::string_view key, std::string_view value) { return raw(key, json_string(value)); }
  JsonObject& number(std::string_view key, double value) { return raw(key, json_number(value)); }
  JsonObject& integer(std::string_view key, std::integral auto value) { return raw(key, std::to_string(value)); }
  JsonObject& flag(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  /// `value` is JSON already.
  JsonObject& raw(std::string_view key, std::string_view value);

  [[nodiscard]] std::string str() const { return text_ + '}'; }

 private:
  std::string text_ = "{";
};

/// `[render(item), …]`, where `render` gives JSON.
template <class Range, class Render>
std::string json_array(const Range& items, Render render) {
  std::string text = "[";
  for (const auto& item : items) {
    if (text.size() > 1) {
      text += ',';
    }
    text += render(item);
  }
  return text + ']';
}

}  // namespace isochron
