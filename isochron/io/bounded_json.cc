#include "isochron/io/bounded_json.h"

#include <stdexcept>

#include "isochron/core/telemetry.h"

namespace isochron::io {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxInteger = std::uint64_t{1} << 53U;

}  // namespace

json parse_bounded_json(std::string_view text, int max_depth, const std::string& not_json) {
  const auto limit_depth = [max_depth](int depth, json::parse_event_t event, const json&) {
    const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth > max_depth) {
      throw std::invalid_argument(
          "values are nested too deeply; permitted: " + std::to_string(max_depth + 1) + " levels");
    }
    return true;
  };
  try {
    return json::parse(text, limit_depth);
  } catch (const json::exception&) {
    throw std::invalid_argument(not_json);
  }
}

void refuse(const std::string& message) {
  throw std::invalid_argument(message);
}

void refuse_type(const char* key, const std::string& permitted) {
  throw std::invalid_argument(std::string(key) + " is of another type; permitted: " + permitted);
}

void read(const json& value, const char* key, std::string& text) {
  if (!value.is_string()) {
    refuse_type(key, "text");
  }
  text = value.get<std::string>();
}

void read(const json& value, const char* key, bool& flag) {
  if (!value.is_boolean()) {
    refuse_type(key, "true or false");
  }
  flag = value.get<bool>();
}

void read(const json& value, const char* key, double& number) {
  if (!value.is_number() && !value.is_null()) {
    refuse_type(key, "a number or null");
  }
  number = value.is_null() ? kUnknown : value.get<double>();
}

void read(const json& value, const char* key, std::int64_t& number) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMaxInteger) {
    throw std::invalid_argument(
        std::string(key) + " is of another type or out of range; permitted: a whole number from 0 to 2^53");
  }
  number = value.get<std::int64_t>();
}

void read(const json& value, const char* key, std::uint64_t& number) {
  if (!value.is_number_unsigned()) {
    refuse_type(key, "a whole number from 0 to 2^64 - 1");
  }
  number = value.get<std::uint64_t>();
}

const json& member(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) {
    throw std::invalid_argument(std::string(key) + " is missing");
  }
  return *found;
}

const json& array_member(const json& object, const char* key) {
  const json& array = member(object, key);
  if (!array.is_array()) {
    refuse_type(key, "an array");
  }
  return array;
}

const json& object_member(const json& object, const char* key) {
  const json& found = member(object, key);
  if (!found.is_object()) {
    refuse_type(key, "an object");
  }
  return found;
}

}  // namespace isochron::io
