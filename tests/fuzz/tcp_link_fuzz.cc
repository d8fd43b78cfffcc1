// What comes over a socket from another worker of an asynchronous job, which then hangs up: frames that fit nothing end
// the link with a reason, everything else is read or refused as a server does, and nothing waits for ever. The bytes
// come twice: as they are, which no seal opens, and as frames of one who knows the keys.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/server/sealed_bytes.h"
#include <sys/socket.h>
#include <unistd.h>

#include "isochron/core/dispatch/messages.h"
#include "isochron/core/error.h"
#include "isochron/server/tcp_link.h"

namespace {

using isochron::server::TcpLink;

constexpr std::chrono::seconds kLong{60};
constexpr std::chrono::seconds kHang{8};  // less than what a fuzzer permits an input

void serve(const isochron::server::Request& request) {
  switch (request.tag) {
    case isochron::server::kPushTag:
      (void)isochron::decode<isochron::PushHeader>(request.message);
      break;
    case isochron::server::kPullTag:
      (void)isochron::decode<isochron::PullHeader>(request.message);
      break;
    case isochron::server::kGoodbyeTag:
      break;
    default:
      (void)isochron::decode<isochron::IterationReport>(request.message);
  }
}

void read_all(TcpLink& link) {
  std::array<std::byte, 8> place{};  // of a gradient, as one who pushes would have announced
  std::shared_ptr<isochron::server::Transfer> gradient;
  const auto start = std::chrono::steady_clock::now();
  while (true) {  // until what ends the link is thrown
    const std::uint64_t events = link.events();
    if (!gradient || link.ended(*gradient)) {
      gradient = link.receive(1, isochron::server::kGradientTag, place);
    }
    if (const auto message = link.take_message(1)) {
      (void)isochron::decode<isochron::Assignment>(*message);
    } else if (const auto request = link.take_request()) {
      serve(*request);
    } else {
      link.idle(events, {}, /*serves=*/true);
    }
    ISO_CHECK(std::chrono::steady_clock::now() - start < kHang, "the end of the connection was not noticed");
  }
}

void hear(std::string_view bytes) {
  std::array<int, 2> ends{};
  ISO_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "no pair of sockets");
  TcpLink link(0, {{.rank = 0, .host = "here"}, {.rank = 1, .host = "there"}}, kLong);
  link.connect(1, ends[0], isochron::server::test_keys());
  (void)::send(ends[1], bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::close(ends[1]);
  try {
    read_all(link);
  } catch (const isochron::Error&) {  // NOLINT(bugprone-empty-catch): refused, or the end of the connection
  }
  isochron::server::Transfers none;
  link.drain(none);
  link.leave(/*orderly=*/false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  hear(bytes);
  isochron::server::FrameSeal seal(isochron::server::test_keys().incoming);
  hear(isochron::server::sealed(bytes, seal));
  return 0;
}
