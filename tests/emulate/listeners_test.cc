#include "isochron/emulate/listeners.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace isochron::emulate {
namespace {

// A port that this process opens on the address, while this lives.
class Port {
 public:
  explicit Port(const std::string& address) {
    sockaddr_in6 v6{.sin6_family = AF_INET6};
    sockaddr_in v4{.sin_family = AF_INET};
    const bool is_v6 = inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1;
    inet_pton(AF_INET, address.c_str(), &v4.sin_addr);
    const auto* const any = is_v6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
    socklen_t size = is_v6 ? sizeof v6 : sizeof v4;
    socket_ = socket(any->sa_family, SOCK_STREAM, 0);
    opened_ = bind(socket_, any, size) == 0 && listen(socket_, 1) == 0;
    sockaddr_in6 found{};
    size = sizeof found;
    getsockname(socket_, reinterpret_cast<sockaddr*>(&found), &size);
    number_ = ntohs(found.sin6_port);  // at the same place in both
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  ~Port() { close(socket_); }

  [[nodiscard]] bool opened() const { return opened_; }
  [[nodiscard]] int number() const { return number_; }

 private:
  int socket_ = -1;
  bool opened_ = false;
  int number_ = 0;
};

TEST(ListenersTest, ShowEveryPortOfAProcessWithItsAddress) {
  struct Case {
    std::string bound;
    std::string shown;
    bool loopback;
  };
  for (const auto& [bound, shown, loopback] :
       {Case{"127.0.0.1", "127.0.0.1", true},
        {"0.0.0.0", "0.0.0.0", false},
        {"::1", "[::1]", true},
        {"::", "[::]", false}}) {
    const Port port(bound);
    if (!port.opened()) {
      continue;  // a system without IPv6
    }
    const std::vector<Listener> found = listeners_of_job(std::to_string(getpid()));
    const auto mine = std::ranges::find(found, port.number(), &Listener::port);
    ASSERT_NE(mine, found.end()) << bound;
    EXPECT_EQ(mine->address, shown);
    EXPECT_EQ(mine->loopback, loopback);
    EXPECT_EQ(mine->process, getpid());
  }
}

TEST(ListenersTest, ReadAddressesAsTheKernelWritesThem) {
  EXPECT_EQ(address_of_proc("0100007F"), "127.0.0.1");
  EXPECT_EQ(address_of_proc("00000000000000000000000001000000"), "[::1]");
  for (const char* const wrong : {"", "0100007", "0100007G", "0100007F0", "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"}) {
    EXPECT_EQ(address_of_proc(wrong), "?") << wrong;
  }
}

TEST(ListenersTest, RefuseWhatIsNoProcess) {
  for (const char* const wrong : {"", "x", "-1", "0", "99999999", "1/../self"}) {
    EXPECT_THROW((void)listeners_of_job(wrong), std::invalid_argument) << wrong;
  }
}

}  // namespace
}  // namespace isochron::emulate
