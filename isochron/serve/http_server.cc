#include "isochron/serve/http_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::serve {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRequestTime{2000};  // from the connection to the last byte of the request
constexpr milliseconds kAnswerTime{30000};  // until an answer, or a part of a stream, is taken
constexpr milliseconds kLingerTime{1000};   // for what a client still sends when it has its answer
constexpr milliseconds kBetweenParts{500};  // of a stream
constexpr milliseconds kStall{5000};        // without taking anything, when others wait for their parts of streams
constexpr milliseconds kLook{50};           // how often streams are asked for more
constexpr milliseconds kUntilAlive{1000};   // after which a stream without news says that it is there
constexpr milliseconds kGoodbye{1000};      // for streams to end by themselves
constexpr std::size_t kMostLingerBytes = 1 << 20;
constexpr std::string_view kStillHere = ": still here\n\n";  // a comment, in the format of server-sent events

}  // namespace

namespace detail {

/// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  [[nodiscard]] int get() const { return number_; }

 private:
  int number_;
};

enum class Stage : std::uint8_t { kRequest, kAnswer, kStream, kLinger, kOver };

struct Connection {
  Descriptor socket;
  std::string address;
  Stage stage = Stage::kRequest;
  Clock::time_point until;   // the time of this stage, or of this part of a stream, is over
  std::string request;       // as far as it has come
  std::string head;          // what has to be sent, and after it
  std::string output;        // this
  std::size_t sent = 0;      // of both
  Clock::time_point taken;   // when the client last took some of it, or could begin to
  std::size_t lingered = 0;  // bytes that came after the request
  Stream stream;
  Clock::time_point next_part;  // when the stream is asked again
  bool is_last = false;         // nothing follows the output
  bool is_closed = false;       // the client sends no more

  [[nodiscard]] std::size_t pending() const { return head.size() + output.size() - sent; }
};

}  // namespace detail

namespace {

using detail::Connection;
using detail::Descriptor;
using detail::Stage;

/// A socket that listens, or none. The port of a server that has just ended may be taken again, but never shared.
Descriptor listen_at(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return Descriptor();
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Descriptor door(::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int yes = 1;
    ::setsockopt(door.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(door.get(), one->ai_addr, one->ai_addrlen) == 0 && ::listen(door.get(), kMostConnections) == 0) {
      return door;
    }
  }
  return Descriptor();
}

int port_of(const Descriptor& door) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXSERV> port{};
  ::getsockname(door.get(), reinterpret_cast<sockaddr*>(&address), &size);
  ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, port.data(), port.size(), NI_NUMERICSERV);
  return static_cast<int>(std::strtol(port.data(), nullptr, 10));
}

std::string address_of(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  ::getnameinfo(
      reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return host.data();
}

}  // namespace

class HttpServer::Loop {
 public:
  Loop(const std::string& host, int port, Handler handler)
      : handler_(std::move(handler)), door_(listen_at(host, port)), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (door_.get() < 0) {
      throw Error(
          "cannot serve at " + host + ", port " + std::to_string(port) +
          ": the address is not this machine's, or the port is taken");
    }
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "isochron-serve");
      run();
    });
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() {
    stopping_ = true;
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    thread_.join();
  }
  [[nodiscard]] int port() const { return port_of(door_); }

 private:
  void run() {
    std::optional<Clock::time_point> end;
    while (true) {
      if (stopping_ && !end) {
        end = Clock::now() + kGoodbye;
      }
      if (end && (streams() == 0 || Clock::now() > *end)) {
        return;
      }
      wait();
      turn();
    }
  }

  [[nodiscard]] std::size_t streams() const {
    return static_cast<std::size_t>(std::ranges::count(connections_, Stage::kStream, &Connection::stage));
  }

  /// Until something comes, can be sent, or is due.
  void wait() {
    polled_.assign(
        {{.fd = wake_.get(), .events = POLLIN, .revents = 0}, {.fd = door_.get(), .events = POLLIN, .revents = 0}});
    int patience = 1000;
    for (const Connection& connection : connections_) {
      const int events = (connection.pending() > 0 ? POLLOUT : 0) | (connection.is_closed ? 0 : POLLIN);
      polled_.push_back({.fd = connection.socket.get(), .events = static_cast<short>(events), .revents = 0});
      const auto left = std::chrono::duration_cast<milliseconds>(connection.until - Clock::now());
      patience = std::clamp<int>(static_cast<int>(left.count()) + 1, 0, patience);
      if (connection.stage == Stage::kStream && connection.pending() == 0) {
        patience = std::min<int>(patience, kLook.count());
      }
    }
    ::poll(polled_.data(), polled_.size(), stopping_ ? std::min<int>(patience, kLook.count()) : patience);
  }

  void turn() {
    auto event = polled_.begin() + 2;
    for (Connection& connection : connections_) {  // in the order in which wait() asked for them
      const short what = (event++)->revents;
      if ((what & (POLLIN | POLLERR | POLLHUP)) != 0 && !connection.is_closed) {
        receive(connection);
      }
      if (connection.stage == Stage::kStream && connection.pending() == 0) {
        ask_stream(connection);
      }
      if (connection.pending() > 0) {
        send(connection);
      }
      if (Clock::now() > connection.until) {
        give_up(connection);
      }
    }
    connections_.remove_if([](const Connection& connection) { return connection.stage == Stage::kOver; });
    if ((polled_[1].revents & POLLIN) != 0 && !stopping_) {
      accept();
    }
  }

  /// Fewer in one turn than an address may have, so that what has come with the others is read before it must go.
  void accept() {
    for (std::size_t i = 0; i < kMostPerAddress / 2; ++i) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      Descriptor socket(
          ::accept4(door_.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.get() < 0) {
        if (errno == EMFILE || errno == ENFILE) {  // the process has none left: not now
          std::this_thread::sleep_for(kLook);
        }
        return;
      }
      const std::string from = address_of(address, size);
      if (make_room(from)) {
        connections_.push_back({.socket = std::move(socket), .address = from, .until = Clock::now() + kRequestTime});
      }
    }
  }

  /// For one more from an address. The oldest that is no stream has to go where there are too many.
  bool make_room(const std::string& address) {
    const auto same = [&](const Connection& one) { return one.address == address; };
    const bool is_many = std::ranges::count_if(connections_, same) >= static_cast<std::ptrdiff_t>(kMostPerAddress);
    if (!is_many && connections_.size() < kMostConnections) {
      return true;
    }
    const auto oldest = std::ranges::find_if(
        connections_, [&](const Connection& one) { return one.stage != Stage::kStream && (!is_many || same(one)); });
    if (oldest == connections_.end()) {
      return false;
    }
    connections_.erase(oldest);
    return true;
  }

  void receive(Connection& connection) {
    std::array<char, kMostRequestBytes> bytes{};
    const ssize_t size = ::recv(connection.socket.get(), bytes.data(), bytes.size(), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    if (size <= 0) {  // a client may close its side and still take what is on its way
      connection.is_closed = true;
      connection.stage = size == 0 && connection.pending() > 0 ? connection.stage : Stage::kOver;
      return;
    }
    const std::string_view news(bytes.data(), static_cast<std::size_t>(size));
    if (connection.stage != Stage::kRequest) {
      connection.lingered += news.size();
      connection.stage = connection.lingered > kMostLingerBytes ? Stage::kOver : connection.stage;
      return;
    }
    connection.request += news;
    if (news.find('\n') != std::string_view::npos || connection.request.size() >= kMostRequestBytes) {
      take(connection, parse_request(connection.request));
    }
  }

  void take(Connection& connection, const Parsed& parsed) {
    if (parsed.refused) {
      answer(connection, {.reply = *parsed.refused});
    } else if (parsed.request) {
      answer(connection, answer_to(*parsed.request));
    }
  }

  /// Makes room for `bytes` more of a stage. Others in it that hold more than kSmallAnswer are given up, the one that
  /// has taken nothing for the longest first, unless it took something after `before`. Whether there is room now.
  bool give_up_others(const Connection& newcomer, std::size_t bytes, Clock::time_point before) {
    while (true) {
      std::size_t held = bytes;
      Connection* longest = nullptr;
      for (Connection& one : connections_) {
        if (&one == &newcomer || one.stage != newcomer.stage || one.output.size() <= kSmallAnswer) {
          continue;
        }
        held += one.output.size();
        longest = longest == nullptr || one.taken < longest->taken ? &one : longest;
      }
      if (held <= kMostPendingBytes || longest == nullptr) {
        return true;
      }
      if (longest->taken > before) {
        return false;
      }
      longest->stage = Stage::kOver;
      std::string().swap(longest->output);
      longest->sent = longest->head.size();
    }
  }

  [[nodiscard]] HttpAnswer answer_to(const HttpRequest& request) const {
    try {
      HttpAnswer answer = handler_(request);
      if (answer.stream && streams() >= kMostStreams) {
        return {.reply = refusal(503, "too many pages are open")};
      }
      return answer;
    } catch (const std::exception&) {
      return {.reply = refusal(500, "internal error")};
    }
  }

  void answer(Connection& connection, HttpAnswer answer) {
    std::string().swap(connection.request);
    connection.taken = Clock::now();
    connection.until = connection.taken + kAnswerTime;
    if (answer.stream) {
      connection.stage = Stage::kStream;
      connection.stream = std::move(answer.stream);
      connection.head = head_of(answer.reply, {});
      return;
    }
    connection.stage = Stage::kAnswer;
    connection.is_last = true;
    connection.head = head_of(answer.reply, answer.reply.body.size());
    connection.output = std::move(answer.reply.body);
    if (connection.output.size() > kSmallAnswer) {
      give_up_others(connection, connection.output.size(), Clock::time_point::max());
    }
  }

  void ask_stream(Connection& connection) {
    const Clock::time_point now = Clock::now();
    connection.until = now + kAnswerTime;
    if ((now < connection.next_part || !give_up_others(connection, 0, now - kStall)) && !stopping_) {
      return;  // where others take nothing, a stream waits until they have, or are given up
    }
    StreamPart part = connection.stream();
    if (part.text.empty() && now < connection.next_part + kUntilAlive) {
      return;
    }
    connection.output = part.text.empty() ? std::string(kStillHere) : std::move(part.text);
    connection.sent = 0;
    connection.taken = now;
    connection.is_last = part.last;
    connection.next_part = now + kBetweenParts;
  }

  static void send(Connection& connection) {
    const std::size_t head = connection.head.size();
    const std::string_view rest = connection.sent < head
                                      ? std::string_view(connection.head).substr(connection.sent)
                                      : std::string_view(connection.output).substr(connection.sent - head);
    const ssize_t size = ::send(connection.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (size < 0) {
      connection.stage = errno == EAGAIN || errno == EINTR ? connection.stage : Stage::kOver;
      return;
    }
    connection.sent += static_cast<std::size_t>(size);
    connection.taken = Clock::now();
    if (connection.pending() > 0) {
      return;
    }
    std::string().swap(connection.head);
    std::string().swap(connection.output);  // an assignment would keep its memory
    connection.sent = 0;
    if (connection.is_closed) {
      connection.stage = Stage::kOver;
    } else if (connection.is_last) {
      ::shutdown(connection.socket.get(), SHUT_WR);
      connection.stage = Stage::kLinger;  // closed while something comes in, the answer might be lost
      connection.until = Clock::now() + kLingerTime;
    }
  }

  /// The time of a connection is over.
  void give_up(Connection& connection) {
    if (connection.stage == Stage::kRequest) {
      answer(connection, {.reply = refusal(408, "a request has two seconds")});
    } else {
      connection.stage = Stage::kOver;
    }
  }

  Handler handler_;
  Descriptor door_;
  Descriptor wake_;
  std::list<Connection> connections_;  // the oldest first
  std::vector<pollfd> polled_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

HttpServer::HttpServer(const std::string& host, int port, Handler handler)
    : loop_(std::make_unique<Loop>(host, port, std::move(handler))) {
}

HttpServer::~HttpServer() = default;

int HttpServer::port() const {
  return loop_->port();
}

}  // namespace isochron::serve
