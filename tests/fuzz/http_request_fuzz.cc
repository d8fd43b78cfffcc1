// Whatever a client sends, the server answers in HTTP or not at all, and gives nothing to what is no GET.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/serve/access.h"
#include "isochron/serve/run_server.h"

namespace {

using isochron::serve::RunServer;

/// The first piece of the answer.
std::string exchange(std::int64_t port, std::string_view bytes) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<std::uint16_t>(port));
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(connection, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0) {
    (void)send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    shutdown(connection, SHUT_WR);
    std::array<char, 256> piece{};
    if (const ssize_t size = read(connection, piece.data(), piece.size()); size > 0) {
      answer.assign(piece.data(), static_cast<std::size_t>(size));
    }
  }
  close(connection);
  return answer;
}

void check(std::string_view bytes) {
  static const RunServer server(isochron::RunHeader{.program = "fuzz"}, {.port = 0});
  const std::string answer = exchange(server.port(), bytes);
  ISO_CHECK(answer.empty() || answer.starts_with("HTTP/1.1 "), "an answer that is none");
  ISO_CHECK(!answer.starts_with("HTTP/1.1 200") || bytes.starts_with("GET "), "something for what is no GET");
  const std::string_view half = bytes.substr(0, bytes.size() / 2);
  const std::string_view rest = bytes.substr(half.size());
  ISO_CHECK(isochron::serve::same_token(half, rest) == (half == rest), "tokens that are not the same");
  (void)isochron::serve::names_loopback(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check({reinterpret_cast<const char*>(data), size});
  return 0;
}
