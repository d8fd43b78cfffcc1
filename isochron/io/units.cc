#include "isochron/io/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace isochron::io {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kRates = {
    Unit{"bit", 1.0 / 8},
    Unit{"kbit", 1e3 / 8},
    Unit{"mbit", 1e6 / 8},
    Unit{"gbit", 1e9 / 8},
    Unit{"byte", 1.0},
    Unit{"kbyte", 1e3},
    Unit{"mbyte", 1e6},
    Unit{"gbyte", 1e9}};
// Dividing by a whole number rounds once, so "2ms" is the same double as 0.002.
constexpr std::array kDurations = {Unit{"s", 1.0}, Unit{"ms", 1e3}, Unit{"us", 1e6}, Unit{"ns", 1e9}};
constexpr std::array kSizes = {
    Unit{"", 1.0}, Unit{"byte", 1.0}, Unit{"kbyte", 1e3}, Unit{"mbyte", 1e6}, Unit{"gbyte", 1e9}};

struct Quantity {
  double number = 0.0;
  double factor = 0.0;  // of the unit
};

/// Nothing if `text` is not a finite number >= 0 followed by one of `units`.
std::optional<Quantity> parse(std::string_view text, std::span<const Unit> units) {
  Quantity quantity;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, quantity.number);
  if (error != std::errc{} || !std::isfinite(quantity.number) || std::signbit(quantity.number)) {
    return std::nullopt;
  }
  const std::string_view name(rest, static_cast<std::size_t>(end - rest));
  for (const Unit& unit : units) {
    if (unit.name == name) {
      quantity.factor = unit.factor;
      return quantity;
    }
  }
  return std::nullopt;
}

[[noreturn]] void refuse(std::string_view text, std::string_view permitted) {
  throw std::invalid_argument("'" + std::string(text) + "'; permitted: " + std::string(permitted));
}

}  // namespace

double parse_rate(std::string_view text) {
  const auto quantity = parse(text, kRates);
  const double rate = quantity ? quantity->number * quantity->factor : 0.0;
  if (!(rate > 0.0) || !std::isfinite(rate)) {
    refuse(text, "a number above 0 with bit, kbit, mbit, gbit, byte, kbyte, mbyte or gbyte, such as 100mbit");
  }
  return rate;
}

double parse_duration(std::string_view text) {
  const auto quantity = parse(text, kDurations);
  if (!quantity) {
    refuse(text, "a number with s, ms, us or ns, such as 2ms");
  }
  return quantity->number / quantity->factor;
}

double parse_size(std::string_view text) {
  const auto quantity = parse(text, kSizes);
  const double size = quantity ? quantity->number * quantity->factor : HUGE_VAL;
  if (!std::isfinite(size)) {
    refuse(text, "a number of bytes, or one with kbyte, mbyte or gbyte, such as 25mbyte");
  }
  return size;
}

}  // namespace isochron::io
