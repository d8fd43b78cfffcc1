#include "isochron/core/state.h"

#include <charconv>
#include <cmath>
#include <stdexcept>

#include "isochron/core/error.h"

namespace isochron {
namespace {

// A line is `n NAME NUMBER...` or `w NAME TEXT`, the text with its line feeds and backslashes escaped.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\\\";
    } else if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      result += text[i] == 'n' ? '\n' : text[i];
    } else {
      result += text[i];
    }
  }
  return result;
}

[[noreturn]] void refuse_missing(const std::string& name) {
  throw std::invalid_argument("state field " + name + " is missing; permitted: a state that this version has saved");
}

[[noreturn]] void refuse_second(const std::string& where, const std::string& name) {
  throw std::invalid_argument(where + ": '" + name + "' is there twice; permitted: once");
}

std::string_view take_word(std::string_view& rest) {
  const std::size_t end = rest.find(' ');
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return word;
}

void append_hex(std::string& text, double value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::hex).ptr;
  text.append(buffer, end);
}

double parse_hex(std::string_view word, const std::string& where) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, std::chars_format::hex);
  if (error != std::errc{} || end != word.data() + word.size()) {
    throw std::invalid_argument(where + ": '" + std::string(word) + "' is not a hexadecimal number");
  }
  return value;
}

template <class Fields>
Fields part_of(const Fields& fields, const std::string& prefix) {
  Fields part;
  for (auto one = fields.lower_bound(prefix); one != fields.end() && one->first.starts_with(prefix); ++one) {
    part.emplace_hint(part.end(), one->first.substr(prefix.size()), one->second);
  }
  return part;
}

template <class Fields>
void put_part(Fields& fields, const std::string& prefix, const Fields& part) {
  std::erase_if(fields, [&](const auto& field) { return field.first.starts_with(prefix); });
  for (const auto& [name, value] : part) {
    fields.emplace(prefix + name, value);
  }
}

}  // namespace

State State::part(std::string_view name) const {
  const std::string prefix = std::string(name) + '.';
  return {.numbers = part_of(numbers, prefix), .words = part_of(words, prefix)};
}

void State::put(std::string_view name, const State& part) {
  const std::string prefix = std::string(name) + '.';
  put_part(numbers, prefix, part.numbers);
  put_part(words, prefix, part.words);
}

std::string State::serialize() const {
  std::string text;
  for (const auto& [name, values] : numbers) {
    text += "n " + name;
    for (const double value : values) {
      text += ' ';
      append_hex(text, value);
    }
    text += '\n';
  }
  for (const auto& [name, word] : words) {
    text += "w " + name + ' ' + escaped(word) + '\n';
  }
  return text;
}

State State::parse(std::string_view text) {
  State state;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const std::string where = "state, line " + std::to_string(line_number);
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      throw std::invalid_argument(where + ": the text ends in the middle of a line");
    }
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const std::string_view type = take_word(line);
    const std::string name(take_word(line));
    if (type == "n" ? state.numbers.contains(name) : state.words.contains(name)) {
      refuse_second(where, name);
    }
    if (type == "n") {
      std::vector<double>& values = state.numbers[name];
      while (!line.empty()) {
        values.push_back(parse_hex(take_word(line), where));
      }
    } else if (type == "w") {
      state.words[name] = unescaped(line);
    } else {
      throw std::invalid_argument(where + ": starts with '" + std::string(type) + "'; permitted: n, w");
    }
  }
  return state;
}

StateExchange StateExchange::save(State& target) {
  StateExchange exchange;
  exchange.target_ = &target;
  return exchange;
}

StateExchange StateExchange::restore(const State& source) {
  StateExchange exchange;
  exchange.source_ = &source;
  return exchange;
}

void StateExchange::field(std::string_view name, double& value) {
  std::vector<double> values{value};
  field(name, values);
  check_length(name, values.size(), 1);
  value = values.front();
}

void StateExchange::field(std::string_view name, bool& value) {
  double number = value ? 1.0 : 0.0;
  field(name, number);
  value = number != 0.0;
}

void StateExchange::field(std::string_view name, std::string& value) {
  const std::string full = prefix_ + std::string(name);
  if (target_ != nullptr) {
    target_->words[full] = value;
    return;
  }
  const auto found = source_->words.find(full);
  if (found == source_->words.end()) {
    refuse_missing(full);
  }
  value = found->second;
}

void StateExchange::field(std::string_view name, std::vector<double>& values) {
  const std::string full = prefix_ + std::string(name);
  if (target_ != nullptr) {
    target_->numbers[full] = values;
    return;
  }
  const auto found = source_->numbers.find(full);
  if (found == source_->numbers.end()) {
    refuse_missing(full);
  }
  values = found->second;
}

void StateExchange::check_length(std::string_view name, std::size_t length, std::size_t permitted) const {
  if (length != permitted) {
    throw std::invalid_argument(
        "state field " + prefix_ + std::string(name) + " has " + std::to_string(length) +
        " numbers; permitted: " + std::to_string(permitted));
  }
}

void StateExchange::check_count(std::string_view name, std::size_t count) const {
  if (source_ != nullptr && count > source_->numbers.size() + source_->words.size()) {
    throw std::invalid_argument(
        "state field " + prefix_ + std::string(name) + ".count is " + std::to_string(count) +
        "; permitted: as many as there are");
  }
}

void StateExchange::check_range(std::string_view name, double number, bool fits) const {
  if (!fits) {
    throw std::invalid_argument(
        "state field " + prefix_ + std::string(name) + " is " + std::to_string(number) +
        "; permitted: a number that fits its place");
  }
}

std::int64_t StateExchange::to_whole(double number, std::string_view name, double least) const {
  if (!(number >= least && number <= 0x1p53) || number != std::floor(number)) {
    throw std::invalid_argument(
        "state field " + prefix_ + std::string(name) + " is " + std::to_string(number) +
        "; permitted: a whole number from " + std::to_string(static_cast<std::int64_t>(least)) + " to 2^53");
  }
  return static_cast<std::int64_t>(number);
}

double StateExchange::to_number(std::int64_t value) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  ISO_CHECK(value <= kExact && value >= -kExact, "a whole number beyond 2^53 does not fit a state field");
  return static_cast<double>(value);
}

}  // namespace isochron
