#include "isochron/server/frame_seal.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/server/sealed_bytes.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"
#include "isochron/server/sha256.h"
#include "isochron/server/tcp_link.h"

namespace isochron::server {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) / 16];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) % 16];
  }
  return text;
}

std::string hash_of(std::string_view text, bool fast) {
  Sha256 hash(fast);
  hash.update(std::as_bytes(std::span(text)));
  return hex(hash.finish());
}

TEST(Sha256Test, GivesTheDigestsOfTheStandard) {
  for (const bool fast : {false, true}) {  // FIPS 180-4's examples
    EXPECT_EQ(hash_of("", fast), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(hash_of("abc", fast), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(
        hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", fast),
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(
        hash_of(std::string(1'000'000, 'a'), fast), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST(Sha256Test, DependsNeitherOnTheProcessorNorOnThePiecesThatCome) {
  Random random({19});
  for (int i = 0; i < 200; ++i) {
    std::string text(random.below(300), '\0');
    for (char& byte : text) {
      byte = static_cast<char>(random.below(256));
    }
    Sha256 pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view piece = std::string_view(text).substr(at, 1 + random.below(100));
      pieces.update(std::as_bytes(std::span(piece)));
      at += piece.size();
    }
    const std::string whole = hash_of(text, false);
    EXPECT_EQ(hex(pieces.finish()), whole);
    EXPECT_EQ(hash_of(text, true), whole);
  }
}

TEST(FrameSealTest, IsAnHmacOverANumberAndTheBytes) {
  FrameSeal seal(std::string(FrameSeal::kKeySize, 'k'));
  // In Python: [hmac.digest(b"k" * 32, struct.pack("<Q", n) + b"words", "sha256")[:16].hex() for n in range(2)]
  EXPECT_EQ(hex(seal.of(std::as_bytes(std::span(std::string_view("words"))))), "df56e6d6e9b423bebc489ad25a717442");
  EXPECT_EQ(hex(seal.of(std::as_bytes(std::span(std::string_view("words"))))), "4d7f36f6d1b37d38efb31403c45bf561");
  EXPECT_THROW(FrameSeal("short"), InvariantError);
}

// Rank 0 sends, rank 1 receives; between them somebody who has the bytes in hand.
class Intercepted {
 public:
  Intercepted() : sender_(0, peers(), 60s), receiver_(1, peers(), 60s) {
    const LinkKeys keys = test_keys();
    std::array<int, 2> ends{};
    make_pair(ends);
    sender_.connect(1, ends[0], keys);
    from_sender_ = ends[1];
    make_pair(ends);
    receiver_.connect(0, ends[0], {.outgoing = keys.incoming, .incoming = keys.outgoing});
    to_receiver_ = ends[1];
  }
  Intercepted(const Intercepted&) = delete;
  Intercepted& operator=(const Intercepted&) = delete;
  ~Intercepted() {
    ::close(from_sender_);
    ::close(to_receiver_);
  }

  TcpLink& sender() { return sender_; }
  TcpLink& receiver() { return receiver_; }

  // What rank 0 has sent, when it is as much.
  [[nodiscard]] std::string caught(std::size_t size) const {
    std::string bytes(size, '\0');
    EXPECT_EQ(::recv(from_sender_, bytes.data(), size, MSG_WAITALL), static_cast<ssize_t>(size));
    return bytes;
  }
  void pass_on(const std::string& bytes) const {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t count = ::send(to_receiver_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      ASSERT_GT(count, 0);
      at += static_cast<std::size_t>(count);
    }
  }
  // Waits until rank 1 has refused what came, and says why.
  std::string refusal() {
    const auto start = std::chrono::steady_clock::now();
    std::optional<Failure> failure;
    while (!(failure = receiver_.failure()) && std::chrono::steady_clock::now() - start < 20s) {
      std::this_thread::sleep_for(1ms);
    }
    return failure ? failure->kind + ": " + failure->text : "it was taken";
  }

 private:
  static std::vector<Peer> peers() { return {{.rank = 0, .host = "here"}, {.rank = 1, .host = "there"}}; }
  static void make_pair(std::array<int, 2>& ends) {
    ISO_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "no pair of sockets");
  }

  TcpLink sender_;
  TcpLink receiver_;
  int from_sender_ = -1;
  int to_receiver_ = -1;
};

constexpr std::size_t kOverhead = FrameHead::kSize + 2 * FrameSeal::kSize;
constexpr auto kRefusal = "PeerError: what came from rank 0 on here has not the seal of this job";

TEST(FrameSealTest, AByteThatIsChangedOnItsWayEndsTheConnectionAndNamesThePeer) {
  const std::string words = "five!";
  for (std::size_t at = 0; at < kOverhead + words.size(); ++at) {
    Intercepted between;
    between.sender().tell(1, kReportTag, words);
    std::string bytes = between.caught(kOverhead + words.size());
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    between.pass_on(bytes);
    EXPECT_THAT(between.refusal(), HasSubstr(kRefusal)) << "byte " << at;
    EXPECT_THROW((void)between.receiver().take_request(), PeerError);
  }
}

TEST(FrameSealTest, WhatIsRepeatedLeftOutExchangedOrSentBackIsRefused) {
  const std::size_t size = kOverhead + 3;
  const auto is_refused = [&](const std::function<std::string(const std::string&, const std::string&)>& change) {
    Intercepted between;
    between.sender().tell(1, kReportTag, "one");
    between.sender().tell(1, kReportTag, "two");
    const std::string first = between.caught(size);
    between.pass_on(change(first, between.caught(size)));
    return between.refusal();
  };
  EXPECT_THAT(is_refused([](auto& first, auto&) { return first + first; }), HasSubstr(kRefusal));
  EXPECT_THAT(is_refused([](auto& first, auto& second) { return first + second + second; }), HasSubstr(kRefusal));
  EXPECT_THAT(is_refused([](auto&, auto& second) { return second; }), HasSubstr(kRefusal));
  EXPECT_THAT(is_refused([](auto& first, auto& second) { return second + first; }), HasSubstr(kRefusal));
  const std::size_t head = FrameHead::kSize + FrameSeal::kSize;  // the bodies alone
  EXPECT_THAT(
      is_refused([&](auto& first, auto& second) {
        return first.substr(0, head) + second.substr(head) + second.substr(0, head) + first.substr(head);
      }),
      HasSubstr(kRefusal));
  FrameSeal own(test_keys().incoming);  // with which rank 1 seals what it sends
  const std::string sent_back = sealed(std::string("\3\0\0\0\3\0\0\0\0\0\0\0one", FrameHead::kSize + 3), own);
  EXPECT_THAT(is_refused([&](auto&, auto&) { return sent_back; }), HasSubstr(kRefusal));
}

TEST(FrameSealTest, NothingOfATransferThatWasChangedReachesItsPlace) {
  Intercepted between;
  const std::vector<std::byte> values(100'000, std::byte{7});
  std::vector<std::byte> place(values.size());
  const auto receiving = between.receiver().receive(0, kFirstValuesTag, place);
  const auto sending = between.sender().send(1, kFirstValuesTag, values);
  std::string bytes = between.caught(kOverhead + values.size());
  bytes[FrameHead::kSize + FrameSeal::kSize + values.size() - 1] ^= 1;
  between.pass_on(bytes);
  EXPECT_THAT(between.refusal(), HasSubstr(kRefusal));
  EXPECT_THAT(place, Each(std::byte{0}));
  EXPECT_THROW((void)between.receiver().ended(*receiving), PeerError);
}

TEST(FrameSealTest, AFailureThatTravelsAfterHalfATransferHasItsSeal) {
  Intercepted between;
  const std::vector<std::byte> values(5'000'000, std::byte{7});  // more than a socket holds
  std::vector<std::byte> place(values.size());
  const auto receiving = between.receiver().receive(0, kFirstValuesTag, place);
  const auto sending = between.sender().send(1, kFirstValuesTag, values);
  between.pass_on(between.caught(1000));
  between.sender().fail({.kind = "Error", .text = "the arithmetic failed"});
  between.pass_on(between.caught(kOverhead + values.size() - 1000));
  const std::size_t words = encode(Failure{.kind = "Error", .text = "the arithmetic failed"}).size();
  between.pass_on(between.caught(kOverhead + words));
  EXPECT_EQ(between.refusal(), "Error: the arithmetic failed");
}

}  // namespace
}  // namespace isochron::server
