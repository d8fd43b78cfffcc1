#include "isochron/server/tcp_link.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/sealed_bytes.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "isochron/core/dispatch/bytes.h"
#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron::server {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kLong = 60s;

std::pair<int, int> make_sockets() {
  std::array<int, 2> ends{};
  ISO_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "no pair of sockets");
  return {ends[0], ends[1]};
}

std::vector<Peer> make_peers(int size) {
  std::vector<Peer> peers;
  for (int rank = 0; rank < size; ++rank) {
    peers.push_back({.rank = rank, .host = "here"});
  }
  return peers;
}

std::vector<std::unique_ptr<TcpLink>> make_links(int size, std::chrono::milliseconds timeout = kLong) {
  std::vector<std::unique_ptr<TcpLink>> links;
  for (int rank = 0; rank < size; ++rank) {
    links.push_back(std::make_unique<TcpLink>(rank, make_peers(size), timeout));
  }
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      const auto [of_a, of_b] = make_sockets();
      const LinkKeys keys = test_keys();
      links[static_cast<std::size_t>(a)]->connect(b, of_a, keys);
      links[static_cast<std::size_t>(b)]->connect(a, of_b, {.outgoing = keys.incoming, .incoming = keys.outgoing});
    }
  }
  return links;
}

// Rank 0, and the socket at which rank 1 would be.
struct Raw {
  explicit Raw(std::chrono::milliseconds timeout = kLong) : link(0, make_peers(2), timeout) {
    const auto [ours, theirs] = make_sockets();
    link.connect(1, ours, test_keys());
    socket = theirs;
  }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;
  ~Raw() { hang_up(); }

  void say(const std::string& bytes) const { (void)!::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void say_frame(std::uint32_t tag, std::uint64_t length, const std::string& body = {}) {
    ByteWriter writer;
    writer(tag, length);
    say(sealed(writer.bytes() + body, seal));
  }
  void hang_up() {
    if (socket >= 0) {
      ::close(std::exchange(socket, -1));
    }
  }

  TcpLink link;
  int socket = -1;
  FrameSeal seal{test_keys().incoming};
};

std::optional<Failure> await_failure(TcpLink& link) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<Failure> failure;
  while (!(failure = link.failure()) && std::chrono::steady_clock::now() - start < kLong) {
    std::this_thread::sleep_for(1ms);
  }
  return failure;
}

Request await_request(TcpLink& link) {
  while (true) {
    const std::uint64_t events = link.events();
    if (auto request = link.take_request()) {
      return *request;
    }
    link.idle(events, 0s, true);
  }
}

std::vector<std::byte> make_values(std::size_t size) {
  std::vector<std::byte> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    values[i] = static_cast<std::byte>(i * 31 % 251);
  }
  return values;
}

TEST(TcpLinkTest, MessagesAndValuesArriveAsTheyWereSentAndInOrder) {
  const auto links = make_links(2);
  links[0]->tell(1, kReportTag, "first");
  links[0]->tell(1, kPullTag, "");
  links[0]->tell(1, kAssignmentTag, "an answer");
  EXPECT_EQ(await_request(*links[1]).message, "first");
  EXPECT_EQ(await_request(*links[1]).tag, kPullTag);
  EXPECT_EQ(links[1]->await_message(0, "an answer"), "an answer");
  const std::vector<std::byte> values = make_values(5'000'001);  // more than a socket holds
  std::vector<std::byte> arrived(values.size());
  Transfers receiving{links[1]->receive(0, kFirstValuesTag, arrived)};
  Transfers sending{links[0]->send(1, kFirstValuesTag, values)};
  links[1]->wait(receiving, "values");
  links[0]->wait(sending, "values");
  EXPECT_EQ(arrived, values);
}

TEST(TcpLinkTest, AGradientWaitsForItsPlaceAndHoldsBackWhatComesAfterIt) {
  const auto links = make_links(2);
  const std::vector<std::byte> values = make_values(1000);
  Transfers sending{links[0]->send(1, kGradientTag, values)};
  links[0]->tell(1, kReportTag, "after it");
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(links[1]->take_request());
  std::vector<std::byte> arrived(values.size());
  Transfers receiving{links[1]->receive(0, kGradientTag, arrived)};
  links[1]->wait(receiving, "a gradient");
  EXPECT_EQ(arrived, values);
  EXPECT_EQ(await_request(*links[1]).message, "after it");
  links[0]->wait(sending, "a gradient");
}

TEST(TcpLinkTest, ARankReachesItself) {
  const auto links = make_links(1);
  const std::vector<std::byte> values = make_values(10);
  std::vector<std::byte> arrived(values.size());
  Transfers both{links[0]->send(0, kGradientTag, values), links[0]->receive(0, kGradientTag, arrived)};
  links[0]->wait(both, "a gradient");
  EXPECT_EQ(arrived, values);
  links[0]->tell(0, kReportTag, "to myself");
  EXPECT_EQ(await_request(*links[0]).message, "to myself");
}

TEST(TcpLinkTest, WhoSaysGoodbyeIsNotLost) {
  const auto links = make_links(2);
  links[1]->leave(true);
  EXPECT_EQ(await_request(*links[0]).tag, kGoodbyeTag);
  std::this_thread::sleep_for(20ms);  // the end of the connection, which comes after it, says no more
  EXPECT_FALSE(links[0]->failure());
}

TEST(TcpLinkTest, WhoSaysGoodbyeWhileOthersWaitIsNamedWithTheReason) {
  const auto links = make_links(2);
  std::vector<std::byte> place(8);
  Transfers receiving{links[0]->receive(1, kFirstValuesTag, place)};
  links[1]->leave(true);
  try {
    links[0]->wait(receiving, "values");
    FAIL() << "there are no values";
  } catch (const PeerLostError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 on here closed the job in the middle of an epoch"));
  }
}

TEST(TcpLinkTest, WhoLetsGoOfATransferInTheMiddleIsNamedWithTheReason) {
  const auto links = make_links(2);
  std::vector<std::byte> place(100);
  Transfers transfers{links[1]->receive(0, kFirstValuesTag, place)};
  links[1]->drain(transfers);
  EXPECT_THAT(transfers, ::testing::IsEmpty());
  const auto failure = await_failure(*links[0]);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->text, "rank 1 on here closed the job in the middle of an epoch, in which others wait for it");
}

TEST(TcpLinkTest, WhoLeavesDoesNotWaitForEverForItsLastWordsToBeTaken) {
  Raw raw;
  constexpr std::size_t kMore = 8'000'000;  // than a socket holds
  raw.link.tell(1, kReportTag, std::string(kMore, 'x'));
  raw.link.leave(true);  // nobody has read a byte of it
  std::size_t arrived = 0;
  std::vector<char> bytes(1'000'000);
  for (ssize_t size = 0; (size = ::recv(raw.socket, bytes.data(), bytes.size(), 0)) > 0;) {
    arrived += static_cast<std::size_t>(size);
  }
  EXPECT_LT(arrived, kMore);
}

TEST(TcpLinkTest, AConnectionThatEndsWithoutAGoodbyeIsALoss) {
  Raw raw;
  raw.hang_up();
  const auto failure = await_failure(raw.link);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, "PeerLostError");
  EXPECT_THAT(failure->text, HasSubstr("lost rank 1 on here (it closed the connection)"));
  EXPECT_THROW(raw.link.tell(1, kReportTag, ""), PeerLostError);
}

TEST(TcpLinkTest, TheFirstFailureReachesAllRanksWithItsText) {
  const auto links = make_links(3);
  links[1]->fail({.kind = "Error", .text = "the arithmetic failed"});
  for (const int rank : {0, 2}) {
    const auto failure = await_failure(*links[static_cast<std::size_t>(rank)]);
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->text, "the arithmetic failed");
  }
}

TEST(TcpLinkTest, ALengthBeyondItsBoundIsRefusedBeforeAnyMemoryIsTakenForIt) {
  Raw raw;
  raw.say_frame(kReportTag, std::uint64_t{1} << 60U);
  const auto failure = await_failure(raw.link);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, "PeerError");
  EXPECT_THAT(failure->text, HasSubstr("rank 1 on here sent a frame of kind 3 and 1152921504606846976 bytes"));
}

TEST(TcpLinkTest, ValuesThatNobodyAskedForOrOfAnotherSizeAreRefused) {
  Raw unasked;
  unasked.say_frame(kFirstValuesTag, 8, "12345678");
  const auto first = await_failure(unasked.link);
  ASSERT_TRUE(first);
  EXPECT_THAT(first->text, HasSubstr("which nobody has asked for"));
  Raw longer;
  std::vector<std::byte> place(4);
  const auto transfer = longer.link.receive(1, kFirstValuesTag, place);
  longer.say_frame(kFirstValuesTag, 8, "12345678");
  const auto second = await_failure(longer.link);
  ASSERT_TRUE(second);
  EXPECT_THAT(second->text, HasSubstr("permitted: 4 bytes"));
}

TEST(TcpLinkTest, WhoFallsSilentInTheMiddleOfAFrameIsLate) {
  Raw raw(50ms);
  std::vector<std::byte> place(8);
  Transfers receiving{raw.link.receive(1, kFirstValuesTag, place)};
  raw.say_frame(kFirstValuesTag, 8, "123");
  try {
    raw.link.wait(receiving, "values");
    FAIL() << "the values are not whole";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 on here"));
  }
}

TEST(TcpLinkTest, BytesWithoutSenseNeverDoMoreThanEndTheLink) {
  Random random({7});
  for (int i = 0; i < 200; ++i) {
    Raw raw;
    std::string bytes(1 + random.below(64), '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random.below(random.below(2) == 0 ? 8 : 256));
    }
    raw.say(i % 2 == 0 ? bytes : sealed(bytes, raw.seal));
    raw.hang_up();
    ASSERT_TRUE(await_failure(raw.link));
  }
}

}  // namespace
}  // namespace isochron::server
