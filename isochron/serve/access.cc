#include "isochron/serve/access.h"

#include <algorithm>

namespace isochron::serve {
namespace {

/// Four numbers, of which the first is 127.
bool is_loopback_v4(std::string_view host) {
  const auto is_plain = [](char c) { return (c >= '0' && c <= '9') || c == '.'; };
  return host.starts_with("127.") && host.size() <= 15 && std::ranges::all_of(host, is_plain) &&
         std::ranges::count(host, '.') == 3;
}

}  // namespace

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || is_loopback_v4(host);
}

bool names_loopback(std::string_view header) {
  if (header.starts_with('[')) {
    const std::size_t end = header.find(']');
    return end != std::string_view::npos && is_loopback(header.substr(1, end - 1));
  }
  return is_loopback(header.substr(0, header.find(':')));
}

bool same_token(std::string_view given, std::string_view expected) {
  unsigned different = given.size() == expected.size() ? 0U : 1U;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const char theirs = i < given.size() ? given[i] : '\0';
    different |= theirs == expected[i] ? 0U : 1U;
  }
  return different == 0U;
}

}  // namespace isochron::serve
