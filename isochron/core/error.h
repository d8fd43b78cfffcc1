// The kinds of failure that the core can report (docs/errors.md has the whole list):
//   std::invalid_argument  bad configuration; the text names the option, the value and what is permitted;
//   isochron::Error        the environment refused (a file, a peer, a deadline); the job may go on;
//   InvariantError         a defect in Isochron itself, raised by ISO_CHECK, which is always on.
// An expected outcome is a return value, never an exception.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace isochron {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A loss or a gradient is not finite.
class NonFiniteError : public Error {
 public:
  using Error::Error;
};

class InvariantError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws std::invalid_argument: "NAME is VALUE; permitted: PERMITTED". A text as value is in_quotes() before.
[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view permitted);
[[noreturn]] void refuse(std::string_view name, std::int64_t value, std::string_view permitted);
[[noreturn]] void refuse(std::string_view name, double value, std::string_view permitted);

/// Refuses the value unless the condition holds.
template <class Value>
void require(bool holds, std::string_view name, const Value& value, std::string_view permitted) {
  if (!holds) {
    refuse(name, value, permitted);
  }
}

void require_between(std::string_view name, std::int64_t value, std::int64_t least, std::int64_t most);
void require_at_least(std::string_view name, std::int64_t value, std::int64_t least);

/// 'text'
[[nodiscard]] std::string in_quotes(std::string_view text);
[[nodiscard]] std::string joined(const std::vector<std::string>& words, std::string_view separator);

namespace detail {
[[noreturn]] void fail_check(const char* condition, const char* file, int line, const std::string& message);
}  // namespace detail

}  // namespace isochron

// `message` is evaluated only on failure, so it may build a string.
#define ISO_CHECK(condition, message)                                            \
  do {                                                                           \
    if (!(condition)) [[unlikely]] {                                             \
      ::isochron::detail::fail_check(#condition, __FILE__, __LINE__, (message)); \
    }                                                                            \
  } while (false)
