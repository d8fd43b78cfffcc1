#include "isochron/core/trace/chain.h"

#include <algorithm>
#include <charconv>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

constexpr std::string_view kBefore = R"(,"chain":")";
constexpr std::string_view kAfter = R"("})";
constexpr std::size_t kDigits = 16;
constexpr std::size_t kFieldSize = kBefore.size() + kDigits + kAfter.size();

bool is_hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/// Up to eight bytes, the first one lowest, so that every machine gets the same.
std::uint64_t word_of(std::string_view bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    word |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8U * i);
  }
  return word;
}

}  // namespace

// Every round is a bijection of the link so far and of the word, so a difference in one of them never vanishes.
std::uint64_t next_link(std::uint64_t previous, std::string_view line) {
  std::uint64_t link = mix_key({previous, line.size()});
  for (std::size_t i = 0; i < line.size(); i += 8) {
    link = mix64(link ^ word_of(line.substr(i, 8)));
  }
  return link;
}

std::string with_link(std::string_view line, std::uint64_t link) {
  char digits[kDigits];
  const char* const end = std::to_chars(digits, digits + kDigits, link, 16).ptr;
  const auto count = static_cast<std::size_t>(end - digits);
  std::string text;
  text.reserve(line.size() + kFieldSize);
  text.append(line.substr(0, line.size() - 1)).append(kBefore);
  return text.append(kDigits - count, '0').append(digits, count).append(kAfter);
}

std::optional<LinkedLine> split_link(std::string_view text) {
  if (text.size() <= kFieldSize) {
    return std::nullopt;
  }
  const std::string_view field = text.substr(text.size() - kFieldSize);
  const std::string_view digits = field.substr(kBefore.size(), kDigits);
  if (!field.starts_with(kBefore) || !field.ends_with(kAfter) || !std::ranges::all_of(digits, is_hex_digit)) {
    return std::nullopt;
  }
  LinkedLine parts{.line = std::string(text.substr(0, text.size() - kFieldSize)) + '}'};
  std::from_chars(digits.data(), digits.data() + digits.size(), parts.link, 16);
  return parts;
}

}  // namespace isochron
