#include "isochron/io/toml_fields.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "isochron/core/trace/utf8.h"

namespace isochron::io {
namespace {

constexpr std::size_t kLongestText = 1000;

bool is_control(unsigned char c) {
  return c < 0x20 || c == 0x7F;
}

std::string shortened(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  return to_utf8(text.substr(0, kLongest)) + (text.size() > kLongest ? "…" : "");
}

std::string shown(const toml::node& node) {
  if (node.is_table() || node.is_array()) {
    return node.is_table() ? "a table" : "an array";
  }
  std::ostringstream stream;
  node.visit([&stream](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>) {
      stream << value;
    }
  });
  return shortened(stream.str());
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string result(text);
  std::ranges::replace_if(result, is_control, '?');
  return result;
}

void TomlFields::fail(std::string_view key, const std::string& message) const {
  const toml::node* const found = table_.get(key);
  const toml::source_region& place = found != nullptr ? found->source() : table_.source();
  throw std::invalid_argument(file_ + ":" + std::to_string(place.begin.line) + ": " + one_line(message));
}

void TomlFields::refuse(std::string_view key, std::string_view permitted) const {
  fail(key, std::string(key) + " is " + shown(*table_.get(key)) + "; permitted: " + std::string(permitted));
}

void TomlFields::fail_where_named(const std::string& message) const {
  for (const auto& [key, value] : table_) {
    const std::string named = std::string(key.str()) + " is ";
    if (message.starts_with(named) || message.find(": " + named) != std::string::npos) {
      fail(key.str(), message);
    }
  }
  fail({}, message);
}

const toml::node* TomlFields::node(std::string_view key) {
  if (std::ranges::find(known_, key) == known_.end()) {
    known_.emplace_back(key);
  }
  return table_.get(key);
}

void TomlFields::number(std::string_view key, double& value) {
  if (const toml::node* const found = node(key)) {
    auto read = found->is_floating_point() ? found->value<double>() : std::nullopt;
    if (found->is_integer()) {  // a large one, too, which toml++ does not take for a number with fractions
      read = static_cast<double>(found->as_integer()->get());
    }
    if (!read || !std::isfinite(*read)) {
      refuse(key, "a finite number");
    }
    value = *read;
  }
}

void TomlFields::integer(std::string_view key, std::int64_t& value) {
  if (const toml::node* const found = node(key)) {
    if (!found->is_integer()) {
      refuse(key, "a whole number");
    }
    value = found->as_integer()->get();
  }
}

void TomlFields::text(std::string_view key, std::string& value) {
  if (const toml::node* const found = node(key)) {
    if (!found->is_string() || found->as_string()->get().size() > kLongestText ||
        std::ranges::any_of(found->as_string()->get(), is_control)) {
      refuse(key, "text in quotes without control characters, at most " + std::to_string(kLongestText) + " bytes");
    }
    value = found->as_string()->get();
  }
}

void TomlFields::flag(std::string_view key, bool& value) {
  if (const toml::node* const found = node(key)) {
    if (!found->is_boolean()) {
      refuse(key, "true or false");
    }
    value = found->as_boolean()->get();
  }
}

const toml::table* TomlFields::table(std::string_view key) {
  const toml::node* const found = node(key);
  if (found != nullptr && !found->is_table()) {
    refuse(key, "a table");
  }
  return found != nullptr ? found->as_table() : nullptr;
}

std::vector<const toml::table*> TomlFields::tables(std::string_view key) {
  std::vector<const toml::table*> result;
  const toml::node* const found = node(key);
  if (found == nullptr) {
    return result;
  }
  if (!found->is_array_of_tables()) {
    refuse(key, "tables that start with [[" + std::string(key) + "]]");
  }
  for (const toml::node& element : *found->as_array()) {
    result.push_back(element.as_table());
  }
  return result;
}

void TomlFields::finish() const {
  for (const auto& [key, value] : table_) {
    if (std::ranges::find(known_, key.str()) == known_.end()) {
      std::string permitted;
      for (const std::string& name : known_) {
        permitted += (permitted.empty() ? "" : ", ") + name;
      }
      fail(key.str(), "unknown key '" + shortened(key.str()) + "'; permitted: " + permitted);
    }
  }
}

}  // namespace isochron::io
