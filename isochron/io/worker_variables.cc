#include "isochron/io/worker_variables.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace isochron::io {
namespace {

/// False unless all of `text` is a number that fits.
template <class Number>
bool parse(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && rest == end;
}

[[noreturn]] void refuse(const char* name, std::string_view text, const std::string& permitted) {
  throw std::invalid_argument(std::string(name) + " is '" + std::string(text) + "'; permitted: " + permitted);
}

}  // namespace

std::optional<std::int64_t> whole_variable(const char* name, std::int64_t low, std::int64_t high) {
  const char* const text = std::getenv(name);
  if (text == nullptr) {
    return std::nullopt;
  }
  std::int64_t value = 0;
  if (!parse(text, value) || value < low || value > high) {
    refuse(name, text, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

std::optional<double> positive_variable(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) {
    return std::nullopt;
  }
  double value = 0.0;
  if (!parse(text, value) || !std::isfinite(value) || value <= 0.0) {
    refuse(name, text, "a finite number above 0");
  }
  return value;
}

}  // namespace isochron::io
