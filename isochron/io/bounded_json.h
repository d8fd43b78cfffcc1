// JSON from outside: text to a value whose depth is bounded, and a value's members by key and type.
//
// Whatever the bytes, the answer is a value or std::invalid_argument that names the key and what is permitted; the
// caller adds the file. How many bytes are read is the caller's to bound.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace isochron::io {

/// At most `max_depth` + 1 values inside one another, the root being depth 0. Text that is no JSON is refused with the
/// words `not_json`.
[[nodiscard]] nlohmann::json parse_bounded_json(std::string_view text, int max_depth, const std::string& not_json);

void read(const nlohmann::json& value, const char* key, std::string& text);
void read(const nlohmann::json& value, const char* key, bool& flag);
/// null, which stands for a number that is not finite, becomes kUnknown.
void read(const nlohmann::json& value, const char* key, double& number);
/// From 0 to 2^53, above which other programs' numbers are no longer exact.
void read(const nlohmann::json& value, const char* key, std::int64_t& number);
void read(const nlohmann::json& value, const char* key, std::uint64_t& number);

/// The document as a whole is not what it should be.
[[noreturn]] void refuse(const std::string& message);
/// `value` is of another type than `permitted`.
[[noreturn]] void refuse_type(const char* key, const std::string& permitted);

[[nodiscard]] const nlohmann::json& member(const nlohmann::json& object, const char* key);
[[nodiscard]] const nlohmann::json& array_member(const nlohmann::json& object, const char* key);
[[nodiscard]] const nlohmann::json& object_member(const nlohmann::json& object, const char* key);

template <class Value>
void read_required(const nlohmann::json& object, const char* key, Value& value) {
  read(member(object, key), key, value);
}

/// Leaves `value` as it is where there is no such key.
template <class Value>
void read_optional(const nlohmann::json& object, const char* key, Value& value) {
  if (const auto found = object.find(key); found != object.end()) {
    read(*found, key, value);
  }
}

}  // namespace isochron::io
