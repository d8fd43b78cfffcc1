#include "isochron/serve/http.h"

#include <algorithm>

namespace isochron::serve {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(
      result, result.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return result;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

/// Takes a line off the front, without its end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  return line;
}

bool is_plain(char c) {
  return c > ' ' && c < '\x7f';
}

/// "GET /path?query HTTP/1.1"
bool take_request_line(std::string_view line, HttpRequest& request) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || first == 0) {
    return false;
  }
  const std::string_view version = line.substr(last + 1);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if ((version != "HTTP/1.1" && version != "HTTP/1.0") || !target.starts_with('/') ||
      !std::ranges::all_of(target, is_plain)) {
    return false;
  }
  request.method = line.substr(0, first);
  request.path = target.substr(0, target.find('?'));
  request.query = request.path.size() < target.size() ? target.substr(request.path.size() + 1) : std::string_view();
  return std::ranges::all_of(request.method, is_plain);
}

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 416:
      return "Range Not Satisfiable";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Request";
  }
}

}  // namespace

std::string HttpRequest::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &Header::name);
  return found == headers.end() ? "" : found->value;
}

std::string HttpRequest::parameter(std::string_view name) const {
  std::string_view rest = query;
  while (!rest.empty()) {
    const std::size_t end = rest.find('&');
    const std::string_view one = rest.substr(0, end);
    if (one.substr(0, one.find('=')) == name && one.size() > name.size()) {
      return std::string(one.substr(name.size() + 1));
    }
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return "";
}

HttpReply refusal(int status, std::string_view text) {
  return {.status = status, .body = std::string(text) + "\n"};
}

Parsed parse_request(std::string_view bytes) {
  const auto refuse = [](int status, std::string_view text) { return Parsed{.refused = refusal(status, text)}; };
  std::string_view rest = bytes.substr(0, kMostRequestBytes);
  HttpRequest request;
  for (std::size_t lines = 0;; ++lines) {
    if (rest.find('\n') == std::string_view::npos) {
      return bytes.size() < kMostRequestBytes ? Parsed{} : refuse(431, "a request has at most 8 KiB");
    }
    const std::string_view line = take_line(rest);
    if (lines == 0) {
      if (!take_request_line(line, request)) {
        return refuse(400, "this is no request of HTTP/1");
      }
      continue;
    }
    if (line.empty()) {
      return {.request = std::move(request)};
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0 || !std::ranges::all_of(line.substr(0, colon), is_plain)) {
      return refuse(400, "a header is 'name: value'");
    }
    if (lines > kMostHeaderLines) {
      return refuse(431, "a request has at most 64 headers");
    }
    request.headers.push_back(
        {.name = lower(line.substr(0, colon)), .value = std::string(trimmed(line.substr(colon + 1)))});
  }
}

std::string head_of(const HttpReply& reply, std::optional<std::size_t> length) {
  std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " ";
  head += reason_of(reply.status);
  head += "\r\nContent-Type: " + reply.type + "\r\n";
  if (length) {
    head += "Content-Length: " + std::to_string(*length) + "\r\n";
  }
  head += reply.headers;
  head +=
      "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
      "Referrer-Policy: no-referrer\r\n\r\n";
  return head;
}

}  // namespace isochron::serve
