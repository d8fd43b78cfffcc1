#include "isochron/core/error.h"

#include <charconv>

namespace isochron {

void refuse(std::string_view name, std::string_view value, std::string_view permitted) {
  throw std::invalid_argument(
      std::string(name) + " is " + std::string(value) + "; permitted: " + std::string(permitted));
}

void refuse(std::string_view name, std::int64_t value, std::string_view permitted) {
  refuse(name, std::string_view(std::to_string(value)), permitted);
}

void refuse(std::string_view name, double value, std::string_view permitted) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  refuse(name, std::string_view(buffer, end), permitted);
}

void require_between(std::string_view name, std::int64_t value, std::int64_t least, std::int64_t most) {
  require(value >= least && value <= most, name, value, std::to_string(least) + " to " + std::to_string(most));
}

void require_at_least(std::string_view name, std::int64_t value, std::int64_t least) {
  require(value >= least, name, value, std::to_string(least) + " or more");
}

std::string in_quotes(std::string_view text) {
  return "'" + std::string(text) + "'";
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    text.append(text.empty() ? "" : separator).append(word);
  }
  return text;
}

namespace detail {

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  throw InvariantError(
      std::string("internal error: ") + message + " (" + condition + " does not hold at " + file + ":" +
      std::to_string(line) + "); please report it");
}

}  // namespace detail
}  // namespace isochron
