#include "isochron/emulate/network.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/emulate/owner.h"

namespace isochron::emulate {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(ShapingTest, TranslatesRateAndDelay) {
  EXPECT_THAT(shaping_commands({}), IsEmpty());
  EXPECT_THAT(
      shaping_commands({.bytes_per_second = 12.5e6}),  // 100 Mbit/s; 12.5 kB in a millisecond
      ElementsAre(
          ElementsAre("root", "handle", "1:", "tbf", "rate", "100000000bit", "burst", "12500", "latency", "50ms")));
  EXPECT_THAT(
      shaping_commands({.delay_seconds = 0.002}),
      ElementsAre(ElementsAre("root", "netem", "delay", "2000us", "limit", "100000")));
  const auto both = shaping_commands({.bytes_per_second = 1e6, .delay_seconds = 1e-4});
  ASSERT_EQ(both.size(), 2U);
  EXPECT_THAT(both[1], ElementsAre("parent", "1:1", "netem", "delay", "100us", "limit", "100000"));
}

class NetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      const Network probe(owner_name() + "-probe", {{.bytes_per_second = 1e6}});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

/// Takes all that comes, in the network of worker 0, 10.0.0.2.
[[noreturn]] void receive_in(const std::string& network, int ready) {
  join_network(network);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in any{.sin_family = AF_INET, .sin_port = htons(7000), .sin_addr = {INADDR_ANY}, .sin_zero = {}};
  const bool listens = bind(listener, reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0 &&
                       listen(listener, 1) == 0 && write(ready, "!", 1) == 1;
  const int connection = listens ? accept(listener, nullptr, nullptr) : -1;
  for (std::vector<char> buffer(65536); read(connection, buffer.data(), buffer.size()) > 0;) {
  }
  _exit(listens ? 0 : 1);
}

/// Sends from the network of worker 1, and waits until the other side has all; false if it cannot.
bool send_from(const std::string& network, std::size_t bytes) {
  join_network(network);
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in there{.sin_family = AF_INET, .sin_port = htons(7000), .sin_addr = {}, .sin_zero = {}};
  inet_pton(AF_INET, "10.0.0.2", &there.sin_addr);
  const std::vector<char> data(bytes);
  char end = 0;
  return connect(connection, reinterpret_cast<const sockaddr*>(&there), sizeof(there)) == 0 &&
         write(connection, data.data(), data.size()) == static_cast<ssize_t>(bytes) &&
         shutdown(connection, SHUT_WR) == 0 && read(connection, &end, 1) == 0;
}

/// The time of `bytes` from worker 1 to worker 0, with the connection's beginning and end.
std::chrono::steady_clock::duration time_of_sending(const Network& network, std::size_t bytes) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t receiver = fork();
  if (receiver == 0) {
    receive_in(network.of_worker(0), ready[1]);
  }
  char sign = 0;
  EXPECT_EQ(read(ready[0], &sign, 1), 1);
  const auto start = std::chrono::steady_clock::now();
  const pid_t sender = fork();
  if (sender == 0) {
    _exit(send_from(network.of_worker(1), bytes) ? 0 : 1);
  }
  for (const pid_t child : {sender, receiver}) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  return std::chrono::steady_clock::now() - start;
}

TEST_F(NetworkTest, HoldsTheRateBetweenTwoWorkers) {
  // Only the receiver's link is limited: 8 Mbit/s, so that 500 kB take half a second, less a burst of 3 kB.
  const Network network(owner_name(), {{.bytes_per_second = 1e6}, {}});
  EXPECT_GT(time_of_sending(network, 500'000), std::chrono::milliseconds(450));
}

TEST_F(NetworkTest, DelaysBetweenTwoWorkers) {
  std::optional<Network> network;
  try {
    network.emplace(owner_name(), std::vector<sim::Link>{{.delay_seconds = 0.06}, {.delay_seconds = 0.04}});
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();  // many kernels come without sch_netem
  }
  // To connect takes one way and back, and so does to hear that all has come.
  EXPECT_GT(time_of_sending(*network, 1000), std::chrono::milliseconds(195));
}

TEST_F(NetworkTest, LeavesNothingBehind) {
  const std::string name = owner_name();
  {
    const Network network(name, {{}});
    EXPECT_TRUE(fs::exists("/run/netns/" + network.hub()));
  }
  EXPECT_FALSE(fs::exists("/run/netns/" + name + "-hub"));
  EXPECT_THROW(Network(name, {{.bytes_per_second = 1e30}}), Error) << "tc knows no such rate";
  EXPECT_FALSE(fs::exists("/run/netns/" + name + "-0"));
}

TEST_F(NetworkTest, IsRemovedOnceItsOwnerIsGone) {
  int end[2];
  ASSERT_EQ(pipe(end), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    const std::string own = owner_name();
    const auto* const never_destroyed = new Network(own, {{}});
    const bool there = fs::exists("/run/netns/" + never_destroyed->hub());
    _exit(there && write(end[1], own.data(), own.size()) > 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(owner, &status, 0);
  ASSERT_EQ(status, 0);
  std::string name(100, ' ');
  name.resize(static_cast<std::size_t>(read(end[0], name.data(), name.size())));
  remove_orphaned_networks();
  EXPECT_FALSE(fs::exists("/run/netns/" + name + "-hub"));
  EXPECT_FALSE(fs::exists("/run/netns/" + name + "-0"));
}

}  // namespace
}  // namespace isochron::emulate
