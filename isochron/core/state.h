// A learned state as a value: named lists of numbers and words, like a framework's state_dict.
//
// A stateful class lists its fields once, in `exchange(StateExchange&)`; the same list saves and restores, so the two
// directions cannot drift apart. Numbers survive `serialize` and `parse` bit by bit, NaN and infinities included.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isochron {

struct State {
  std::map<std::string, std::vector<double>, std::less<>> numbers;
  std::map<std::string, std::string, std::less<>> words;

  bool operator==(const State&) const = default;

  /// The fields whose names begin with "name.", without that.
  [[nodiscard]] State part(std::string_view name) const;
  /// Puts `part` in the place of these fields.
  void put(std::string_view name, const State& part);

  /// One field a line; hexadecimal floating point.
  [[nodiscard]] std::string serialize() const;
  /// The inverse of serialize(). Throws std::invalid_argument naming the line on any other text, whatever it is.
  static State parse(std::string_view text);
};

class StateExchange {
 public:
  /// Fields are written into `target`.
  static StateExchange save(State& target);
  /// Fields are read from `source`; a missing field or one of the wrong length throws std::invalid_argument.
  static StateExchange restore(const State& source);

  [[nodiscard]] bool restoring() const { return source_ != nullptr; }

  void field(std::string_view name, double& value);
  void field(std::string_view name, bool& value);
  void field(std::string_view name, std::string& value);
  void field(std::string_view name, std::vector<double>& values);

  /// Whole numbers; exact up to 2^53, which ISO_CHECK guards.
  template <std::integral T>
  void field(std::string_view name, T& value) {
    auto number = to_number(static_cast<std::int64_t>(value));
    field(name, number);
    value = to_whole<T>(number, name);
  }
  template <std::integral T>
  void field(std::string_view name, std::vector<T>& values) {
    std::vector<double> numbers;
    numbers.reserve(values.size());
    for (const T value : values) {
      numbers.push_back(to_number(static_cast<std::int64_t>(value)));
    }
    field(name, numbers);
    values.resize(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      values[i] = to_whole<T>(numbers[i], name);
    }
  }

  /// A list whose length the configuration gives, not the state.
  template <class T>
  void fixed_list(std::string_view name, std::vector<T>& values) {
    const std::size_t length = values.size();
    field(name, values);
    check_length(name, values.size(), length);
  }

  /// A part with an `exchange` of its own; its fields get the prefix "name.".
  template <class Part>
  void part(std::string_view name, Part& part) {
    const std::size_t outer = prefix_.size();
    prefix_.append(name).push_back('.');
    part.exchange(*this);
    prefix_.resize(outer);
  }

  /// A list of parts, resized when restoring to the length that was saved; Part must be default constructible.
  template <class Part>
  void parts(std::string_view name, std::vector<Part>& list) {
    auto count = list.size();
    field(std::string(name) + ".count", count);
    check_count(name, count);
    list.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      part(std::string(name) + "." + std::to_string(i), list[i]);
    }
  }

 private:
  void check_length(std::string_view name, std::size_t length, std::size_t permitted) const;
  /// Every part has a field at least, so a state cannot hold more parts than fields.
  void check_count(std::string_view name, std::size_t count) const;
  static double to_number(std::int64_t value);
  [[nodiscard]] std::int64_t to_whole(double number, std::string_view name, double least) const;
  void check_range(std::string_view name, double number, bool fits) const;
  template <std::integral T>
  T to_whole(double number, std::string_view name) const {
    const std::int64_t whole = to_whole(number, name, std::unsigned_integral<T> ? 0.0 : -0x1p53);
    check_range(name, number, std::in_range<T>(whole));
    return static_cast<T>(whole);
  }

  State* target_ = nullptr;
  const State* source_ = nullptr;
  std::string prefix_;
};

/// What `part` holds, as a value.
template <class Part>
State save_state(Part& part) {
  State state;
  auto exchange = StateExchange::save(state);
  part.exchange(exchange);
  return state;
}

template <class Part>
void restore_state(Part& part, const State& state) {
  auto exchange = StateExchange::restore(state);
  part.exchange(exchange);
}

}  // namespace isochron
