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

constexpr double kMostNumber = std::numeric_limits<double>::max();

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

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

template <class Number>
bool assign(Number& value, std::string_view text, Number low, Number high) {
  const auto parsed = parse_number<Number>(text);
  const bool permitted = parsed && std::isfinite(static_cast<double>(*parsed)) && *parsed >= low && *parsed <= high;
  if (permitted) {
    value = *parsed;
  }
  return permitted;
}

template <class Number>
Option number_of(
    Option::Type type, std::string_view name, Number& value, Number low, Number high, std::string_view meaning) {
  Option option;
  option.name = name;
  option.type = type;
  option.meaning = meaning;
  option.get = [&value] { return text_of(value); };
  option.set = [&value, low, high](std::string_view text) { return assign(value, text, low, high); };
  option.standard = option.get();
  return option;
}

}  // namespace

Specification Specification::parse(std::string_view kind, std::string_view text) {
  Specification spec{.kind = std::string(kind)};
  const std::size_t colon = text.find(':');
  spec.name = text.substr(0, colon);
  if (colon == std::string_view::npos) {
    return spec;
  }
  for (const std::string_view part : parts_of(text.substr(colon + 1), ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      throw std::invalid_argument(
          spec.kind + " " + spec.name + ": option is '" + std::string(part) + "'; permitted: name=value");
    }
    const auto [place, fresh] = spec.options.emplace(part.substr(0, equals), part.substr(equals + 1));
    if (!fresh) {
      throw std::invalid_argument(
          spec.kind + " " + spec.name + ": option " + place->first + " is there twice; permitted: once");
    }
  }
  return spec;
}

Option integer_option(
    std::string_view name, std::int64_t& value, std::int64_t low, std::int64_t high, std::string_view meaning) {
  Option option = number_of(Option::Type::kInteger, name, value, low, high, meaning);
  option.permitted = "a whole number from " + text_of(low) + " to " + text_of(high);
  return option;
}

Option integer_option(std::string_view name, std::uint64_t& value, std::string_view meaning) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  Option option = number_of(Option::Type::kInteger, name, value, std::uint64_t{0}, kMost, meaning);
  option.permitted = "a whole number from 0 to " + text_of(kMost);
  return option;
}

Option size_option(
    std::string_view name, std::int64_t& value, std::int64_t low, std::int64_t high, std::string_view meaning) {
  Option option = number_of(Option::Type::kSize, name, value, low, high, meaning);
  option.permitted = range_text(low, high) + " bytes";
  return option;
}

Option number_option(std::string_view name, double& value, double low, double high, std::string_view meaning) {
  Option option = number_of(Option::Type::kNumber, name, value, low, high, meaning);
  option.permitted = "a finite number, " + range_text(low, high);
  return option;
}

Option flag_option(std::string_view name, bool& value, std::string_view meaning) {
  static constexpr Names<bool, 2> kNames{{{true, "true"}, {false, "false"}}};
  Option option = choice_option(name, value, kNames, meaning);
  option.type = Option::Type::kFlag;
  return option;
}

Option text_option(std::string_view name, std::string& value, std::string_view placeholder, std::string_view meaning) {
  Option option;
  option.name = name;
  option.permitted = placeholder;
  option.standard = value;
  option.meaning = meaning;
  option.placeholder = placeholder;
  option.get = [&value] { return value; };
  option.set = [&value](std::string_view text) {
    value = text;
    return true;
  };
  return option;
}

Option choice_option(
    std::string_view name, std::string& value, const std::vector<std::string>& permitted, std::string_view meaning) {
  Option option = text_option(name, value, "", meaning);
  option.type = Option::Type::kChoice;
  option.choices = permitted;
  option.permitted = joined(permitted, ", ");
  option.set = [&value, permitted](std::string_view text) {
    const bool known = std::ranges::find(permitted, text) != permitted.end();
    if (known) {
      value = text;
    }
    return known;
  };
  return option;
}

void OptionTable::number(std::string_view name, double& value, double low, double high, std::string_view meaning) {
  read(number_option(name, value, low, high, meaning), range_text(low, high));
}

void OptionTable::integer(
    std::string_view name, std::int64_t& value, std::int64_t low, std::int64_t high, std::string_view meaning) {
  read(integer_option(name, value, low, high, meaning), range_text(low, high));
}

void OptionTable::flag(std::string_view name, bool& value, std::string_view meaning) {
  static constexpr Names<bool, 2> kNames{{{true, "on"}, {false, "off"}}};
  const Option option = choice_option(name, value, kNames, meaning);
  read(option, joined(option.choices, " | "));
}

void OptionTable::choice(
    std::string_view name, std::string& value, const std::vector<std::string>& permitted, std::string_view meaning) {
  read(choice_option(name, value, permitted, meaning), joined(permitted, " | "));
}

void OptionTable::numbers(std::string_view name, std::vector<double>& values, std::string_view meaning) {
  Option option;
  option.name = name;
  option.meaning = meaning;
  option.standard = "none";
  option.set = [&values](std::string_view text) {
    std::vector<double> read;
    for (const std::string_view part : parts_of(text, '/')) {
      if (!assign(read.emplace_back(), part, std::numeric_limits<double>::min(), kMostNumber)) {
        return false;
      }
    }
    values = std::move(read);
    return true;
  };
  read(option, "positive numbers with slashes between: 1/2/4");
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

void OptionTable::read(const Option& option, std::string permitted) {
  rows_.push_back(
      {.name = option.name, .meaning = option.meaning, .permitted = std::move(permitted), .standard = option.standard});
  const auto found = spec_.options.find(option.name);
  if (found != spec_.options.end() && !option.set(found->second)) {
    refuse_value(rows_.back(), found->second);
  }
}

void OptionTable::refuse_value(const Row& row, std::string_view value) const {
  refuse(spec_.kind + " " + spec_.name + ": " + row.name, value.empty() ? "empty" : value, row.permitted);
}

}  // namespace isochron
