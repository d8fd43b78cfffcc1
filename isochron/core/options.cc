#include "isochron/core/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

namespace isochron {
namespace {

template <class Number>
std::string text_of(Number value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

template <class Number>
std::string range_text(Number low, Number high) {
  const bool open = high == std::numeric_limits<Number>::max() || high == std::numeric_limits<Number>::infinity();
  return open ? text_of(low) + " or more" : text_of(low) + " to " + text_of(high);
}

std::vector<std::string_view> pieces_of(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const std::size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return pieces;
    }
    text.remove_prefix(end + 1);
  }
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : std::string(separator)) + word;
  }
  return text;
}

}  // namespace

Specification Specification::parse(std::string_view kind, std::string_view text) {
  Specification spec{.kind = std::string(kind)};
  const std::size_t colon = text.find(':');
  spec.name = text.substr(0, colon);
  if (colon == std::string_view::npos) {
    return spec;
  }
  for (const std::string_view piece : pieces_of(text.substr(colon + 1), ',')) {
    const std::size_t equals = piece.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      throw std::invalid_argument(
          spec.kind + " " + spec.name + ": option is '" + std::string(piece) + "'; permitted: name=value");
    }
    const auto [place, fresh] = spec.options.emplace(piece.substr(0, equals), piece.substr(equals + 1));
    if (!fresh) {
      throw std::invalid_argument(
          spec.kind + " " + spec.name + ": option " + place->first + " is there twice; permitted: once");
    }
  }
  return spec;
}

void OptionTable::number(std::string_view name, double& value, double low, double high, std::string_view meaning) {
  const std::string* text = take(name, meaning, range_text(low, high), text_of(value));
  if (text == nullptr) {
    return;
  }
  const auto parsed = parse_number<double>(*text);
  if (!parsed || !std::isfinite(*parsed) || *parsed < low || *parsed > high) {
    refuse(rows_.back(), *text);
  }
  value = *parsed;
}

void OptionTable::integer(
    std::string_view name, std::int64_t& value, std::int64_t low, std::int64_t high, std::string_view meaning) {
  const std::string* text = take(name, meaning, range_text(low, high), text_of(value));
  if (text == nullptr) {
    return;
  }
  const auto parsed = parse_number<std::int64_t>(*text);
  if (!parsed || *parsed < low || *parsed > high) {
    refuse(rows_.back(), *text);
  }
  value = *parsed;
}

void OptionTable::flag(std::string_view name, bool& value, std::string_view meaning) {
  std::string word = value ? "on" : "off";
  choice(name, word, {"on", "off"}, meaning);
  value = word == "on";
}

void OptionTable::choice(
    std::string_view name, std::string& value, const std::vector<std::string>& permitted, std::string_view meaning) {
  const std::string* text = take(name, meaning, joined(permitted, " | "), value);
  if (text == nullptr) {
    return;
  }
  if (std::ranges::find(permitted, *text) == permitted.end()) {
    refuse(rows_.back(), *text);
  }
  value = *text;
}

void OptionTable::numbers(std::string_view name, std::vector<double>& values, std::string_view meaning) {
  const std::string* text = take(name, meaning, "positive numbers with slashes between: 1/2/4", "none");
  if (text == nullptr) {
    return;
  }
  values.clear();
  for (const std::string_view piece : pieces_of(*text, '/')) {
    const auto parsed = parse_number<double>(piece);
    if (!parsed || !std::isfinite(*parsed) || *parsed <= 0.0) {
      refuse(rows_.back(), *text);
    }
    values.push_back(*parsed);
  }
}

void OptionTable::finish() const {
  for (const auto& [name, value] : spec_.options) {
    if (std::ranges::find(rows_, name, &Row::name) != rows_.end()) {
      continue;
    }
    std::vector<std::string> known;
    known.reserve(rows_.size());
    for (const Row& row : rows_) {
      known.push_back(row.name);
    }
    throw std::invalid_argument(
        spec_.kind + " " + spec_.name + ": option is " + name +
        "; permitted: " + (known.empty() ? "none" : joined(known, ", ")));
  }
}

const std::string* OptionTable::take(
    std::string_view name, std::string_view meaning, std::string permitted, std::string standard) {
  rows_.push_back(
      {.name = std::string(name),
       .meaning = std::string(meaning),
       .permitted = std::move(permitted),
       .standard = std::move(standard)});
  const auto found = spec_.options.find(name);
  return found == spec_.options.end() ? nullptr : &found->second;
}

void OptionTable::refuse(const Row& row, std::string_view value) const {
  throw std::invalid_argument(
      spec_.kind + " " + spec_.name + ": " + row.name + " is " + (value.empty() ? "empty" : std::string(value)) +
      "; permitted: " + row.permitted);
}

}  // namespace isochron
