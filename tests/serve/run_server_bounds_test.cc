// What a stranger can make the live page take: connections, time and memory are bounded, and others are still answered.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/sanitized.h"
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "isochron/serve/http_server.h"
#include "isochron/serve/run_server.h"

namespace isochron::serve {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kPatience = 20'000;  // ms: far beyond every bound, so that only a hang fails

/// A client that says what it is told to, byte by byte if need be.
class Caller {
 public:
  explicit Caller(std::int64_t port, const char* from = "127.0.0.1")
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    ::inet_pton(AF_INET, from, &here.sin_addr);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&here), sizeof here), 0);
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_port = htons(static_cast<std::uint16_t>(port));
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&there), sizeof there), 0);
  }
  Caller(Caller&& other) noexcept : socket_(other.socket_) { other.socket_ = -1; }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  Caller& operator=(Caller&&) = delete;
  ~Caller() {
    if (socket_ >= 0) {
      ::close(socket_);
    }
  }

  /// Whether the other side still takes it.
  bool say(std::string_view text) const {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  /// Whether something is to be read, the end included.
  [[nodiscard]] bool hears_within(int milliseconds) const {
    pollfd waiting{.fd = socket_, .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, milliseconds) > 0;
  }
  /// All until the end, in parts; what comes later than kPatience is missing.
  void hear(const std::function<void(std::string_view)>& take) const {
    std::array<char, 65536> bytes{};
    while (hears_within(kPatience)) {
      const ssize_t size = ::recv(socket_, bytes.data(), bytes.size(), 0);
      if (size <= 0) {
        return;
      }
      take({bytes.data(), static_cast<std::size_t>(size)});
    }
    ADD_FAILURE() << "no end";
  }
  [[nodiscard]] std::string hear() const {
    std::string text;
    hear([&](std::string_view part) { text += part; });
    return text;
  }

 private:
  int socket_;
};

constexpr std::string_view kHalf = "GET / HTTP/1.1\r\nHost: local";

std::string request(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
}

std::string answer_to(const auto& server, const std::string& bytes, const char* from = "127.0.0.1") {
  const Caller caller(server.port(), from);
  (void)caller.say(bytes);
  return caller.hear();
}

/// Without keeping it, so that it costs this process what it costs the server.
std::size_t size_of_answer(const auto& server, const std::string& bytes) {
  const Caller caller(server.port());
  (void)caller.say(bytes);
  std::size_t size = 0;
  caller.hear([&](std::string_view part) { size += part.size(); });
  return size;
}

std::int64_t resident_bytes() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

TEST(RunServerBoundsTest, RefusesSeveralRanges) {
  const RunServer server({.program = "train"}, {.port = 0});
  std::string ranges = "Range: bytes=0-";
  for (int i = 0; i < 1000; ++i) {
    ranges += ",0-";
  }
  const std::string answer = answer_to(server, request("/", ranges + "\r\n"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 416 "));
  EXPECT_LT(answer.size(), 1000U);
  EXPECT_THAT(answer_to(server, request("/", "Range: bytes=0-10\r\n")), StartsWith("HTTP/1.1 200 "));
}

TEST(RunServerBoundsTest, ManyHalfRequestsKeepNobodyOut) {
  const RunServer server({.program = "train"}, {.port = 0});
  std::vector<Caller> silent;
  for (int i = 0; i < 200; ++i) {
    (void)silent.emplace_back(server.port()).say(kHalf);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(answer_to(server, request("/healthz")), StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(
      std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));  // 24 threads of 5 s each would take 40
}

TEST(RunServerBoundsTest, OneAddressHasSoManyConnectionsOfWhichTheOldestGoes) {
  const RunServer server({.program = "train"}, {.port = 0});
  std::vector<Caller> silent;
  for (std::size_t i = 0; i < kMostPerAddress + 1; ++i) {
    (void)silent.emplace_back(server.port()).say("G");
  }
  EXPECT_EQ(silent.front().hear(), "");  // sent away without a word before its time is over
  EXPECT_TRUE(silent.back().say("ET /healthz HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(silent.back().hear(), StartsWith("HTTP/1.1 200 "));
}

TEST(RunServerBoundsTest, WhoSpeaksSlowlyHasTheSameTimeAsOthers) {
  const RunServer server({.program = "train"}, {.port = 0});
  const Caller slow(server.port());
  int said = 0;
  for (; said < 100 && !slow.hears_within(100); ++said) {  // a byte every 100 ms, for ten seconds at most
    (void)slow.say(said == 0 ? "GET /" : "x");
  }
  EXPECT_LT(said, 100);
  EXPECT_THAT(slow.hear(), StartsWith("HTTP/1.1 408 "));
}

TEST(RunServerBoundsTest, RefusesManyHeaderLines) {
  const RunServer server({.program = "train"}, {.port = 0});
  std::string lines;
  for (int i = 0; i < 65; ++i) {
    lines += "a: b\r\n";
  }
  EXPECT_THAT(answer_to(server, request("/healthz", lines)), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(answer_to(server, request("/healthz")), StartsWith("HTTP/1.1 200 "));
}

/// A page that no socket's buffer holds, and a small answer.
HttpAnswer large_or_small(const HttpRequest& asked, std::size_t bytes) {
  std::string body = "ok";
  if (asked.path == "/") {
    body.reserve(bytes + 7);  // or the text alone would take twice the memory
    body.assign(bytes, 'x');
    body += "</html>";
  }
  return {.reply = {.body = std::move(body)}};
}

TEST(RunServerBoundsTest, ReadersWhoTakeNothingCostFewMegabytes) {
  // 60 answers of 5 MB would be 300 MB.
  const HttpServer server("127.0.0.1", 0, [](const HttpRequest& asked) { return large_or_small(asked, 5'000'000); });
  ASSERT_GT(size_of_answer(server, request("/")), 5'000'000U);
  const std::int64_t before = resident_bytes();
  std::vector<Caller> readers;
  for (int i = 0; i < 60; ++i) {
    (void)readers.emplace_back(server.port()).say(request("/"));
  }
  EXPECT_THAT(answer_to(server, request("/healthz")), StartsWith("HTTP/1.1 200 "));  // all of them had their turn
  if (!kSanitized) {
    EXPECT_LT(resident_bytes() - before, 4 * static_cast<std::int64_t>(kMostPendingBytes));
  }
  EXPECT_GT(size_of_answer(server, request("/")), 5'000'000U) << "while none of them has taken anything";
}

TEST(RunServerBoundsTest, OneWhoTakesNothingClosesThePageForNobody) {
  const HttpServer server("127.0.0.1", 0, [](const HttpRequest& asked) { return large_or_small(asked, 9'000'000); });
  const Caller stranger(server.port());
  EXPECT_TRUE(stranger.say(request("/")));
  EXPECT_TRUE(stranger.hears_within(kPatience));  // more than may lie ready is its answer alone
  for (const char* const path : {"/healthz", "/", "/metrics", "/"}) {
    const std::string answer = answer_to(server, request(path), "127.0.0.2");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << path;  // a matcher would print 9 MB
    EXPECT_TRUE(answer.ends_with(path == std::string_view("/") ? "</html>" : "ok")) << path;
  }
  EXPECT_FALSE(stranger.hear().ends_with("</html>")) << "its answer has made room for the others";
}

TEST(RunServerBoundsTest, ASmallAnswerTakesNobodyHis) {
  const HttpServer server("127.0.0.1", 0, [](const HttpRequest& asked) { return large_or_small(asked, 9'000'000); });
  const Caller reader(server.port());
  EXPECT_TRUE(reader.say(request("/")));
  EXPECT_TRUE(reader.hears_within(kPatience));
  EXPECT_TRUE(answer_to(server, request("/healthz"), "127.0.0.2").ends_with("ok"));
  EXPECT_TRUE(reader.hear().ends_with("</html>"));
}

StepRecord step_of_48(std::int64_t number) {
  StepRecord record{.step = number, .start_seconds = static_cast<double>(number), .seconds = 0.1};
  for (WorkerId id = 0; id < 48; ++id) {
    WorkerStep worker{.id = id};
    worker.batch = 8;
    worker.compute_seconds = 0.05 + 0.001 * static_cast<double>(id);
    record.workers.push_back(worker);
  }
  return record;
}

/// The most memory that this process has had since the last call, in bytes.
std::int64_t most_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::int64_t kilobytes = 0;
  while (status >> word) {
    if (word == "VmHWM:") {
      status >> kilobytes;
    }
  }
  std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): resets it
  return kilobytes * 1024;
}

TEST(RunServerBoundsTest, APageOfALargeRunCostsFewMegabytes) {
  RunServer server({.program = "train"}, {.port = 0});
  for (std::int64_t i = 0; i < 4000; ++i) {
    server.add(step_of_48(i));
  }
  (void)most_resident_bytes();
  const std::int64_t before = resident_bytes();
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(size_of_answer(server, request("/")), 500'000U);
  }
  const std::int64_t most = most_resident_bytes();
  EXPECT_LT(size_of_answer(server, request("/")), 2'000'000U);  // as in a report it would be 5 million
  if (!kSanitized) {
    EXPECT_LT(most - before, 12'000'000);
  }
}

TEST(RunServerBoundsTest, StreamsThatNobodyReadsCostFewMegabytes) {
  // 16 pages of which each held a part of 9 MB, of which its socket takes 7 at most, would be 144 MB.
  std::atomic<bool> has_news = false;
  std::atomic<int> parts = 0;
  const HttpServer server("127.0.0.1", 0, [&](const HttpRequest& /*asked*/) {
    return HttpAnswer{.stream = [&] {
      StreamPart part;
      if (has_news) {
        ++parts;
        part = {.text = std::string(9'000'000, 'x'), .last = true};
        part.text += "end";
      }
      return part;
    }};
  });
  std::vector<Caller> pages;
  for (std::size_t i = 0; i < kMostStreams; ++i) {
    (void)pages.emplace_back(server.port()).say(request("/events"));
    EXPECT_TRUE(pages.back().hears_within(kPatience));  // the head of the answer: it is a stream now
  }
  const std::int64_t before = resident_bytes();
  has_news = true;
  while (parts == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // ten looks for more of each of them
  EXPECT_EQ(parts, 1);
  if (!kSanitized) {
    EXPECT_LT(resident_bytes() - before, 6 * static_cast<std::int64_t>(kMostPendingBytes));
  }
  std::vector<std::future<std::string>> heard;
  for (const Caller& page : pages) {  // when one has taken its part, another gets one
    heard.push_back(std::async(std::launch::async, [&page] { return page.hear(); }));
  }
  for (std::future<std::string>& text : heard) {
    EXPECT_THAT(text.get(), HasSubstr("xend"));
  }
  EXPECT_EQ(parts, static_cast<int>(kMostStreams));
}

}  // namespace
}  // namespace isochron::serve
