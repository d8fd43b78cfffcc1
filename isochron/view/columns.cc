#include "isochron/view/columns.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace isochron::view {
namespace {

template <class Bits>
void append_little_endian(std::string& bytes, Bits bits) {
  for (std::size_t i = 0; i < sizeof(Bits); ++i) {
    bytes += static_cast<char>(static_cast<unsigned char>(bits >> (8U * i)));
  }
}

template <class Number, class Bits>
std::string column(std::span<const double> values) {
  std::string bytes;
  bytes.reserve(values.size() * sizeof(Number));
  for (const double value : values) {
    const bool fits = std::abs(value) <= static_cast<double>(std::numeric_limits<Number>::max());  // NaN does not
    const Number number = fits ? static_cast<Number>(value) : std::numeric_limits<Number>::quiet_NaN();
    append_little_endian(bytes, std::bit_cast<Bits>(number));
  }
  return '"' + base64(bytes) + '"';
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8U | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += k <= count ? kDigits[group >> (18U - 6U * k) & 63U] : '=';
    }
  }
  return text;
}

std::string float_column(std::span<const double> values) {
  return column<float, std::uint32_t>(values);
}

std::string double_column(std::span<const double> values) {
  return column<double, std::uint64_t>(values);
}

}  // namespace isochron::view
