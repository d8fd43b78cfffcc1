// The part of HTTP/1 that a page needs: one GET per connection, without a body. Pure functions over bytes.
//
// A request is bounded before it is looked at: 8 KiB, 64 header lines. Names of headers are compared without regard to
// case, the first of several counts, and what is not asked for is not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace isochron::serve {

inline constexpr std::size_t kMostRequestBytes = 8192;
inline constexpr std::size_t kMostHeaderLines = 64;

struct HttpRequest {
  std::string method;
  std::string path;   // without parameters
  std::string query;  // what follows the question mark
  struct Header {
    std::string name;  // in small letters
    std::string value;
  };
  std::vector<Header> headers;

  /// The first header or parameter of that name, empty if there is none. `name` in small letters.
  [[nodiscard]] std::string header(std::string_view name) const;
  [[nodiscard]] std::string parameter(std::string_view name) const;
};

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::string headers;  // further ones, each with its line end
};

/// A reply of one line of plain text.
[[nodiscard]] HttpReply refusal(int status, std::string_view text);

/// What the bytes of a connection amount to so far: a request, a refusal, or neither while more has to come.
struct Parsed {
  std::optional<HttpRequest> request;
  std::optional<HttpReply> refused;
};
[[nodiscard]] Parsed parse_request(std::string_view bytes);

/// The reply's first lines. Without a length the body ends with the connection.
[[nodiscard]] std::string head_of(const HttpReply& reply, std::optional<std::size_t> length);

}  // namespace isochron::serve
