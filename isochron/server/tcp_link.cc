#include "isochron/server/tcp_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::server {
namespace {

// Tags of the link's own frames.
constexpr int kFailureTag = 8;
constexpr int kAliveTag = 9;

constexpr std::size_t kAtATime = std::size_t{1} << 20;       // bytes of one visit to a socket
constexpr auto kFarewell = std::chrono::milliseconds(5000);  // for the last words
constexpr auto kLongestIdle = std::chrono::milliseconds(100);

bool is_message(int tag) {
  return tag >= kPushTag && tag <= kAssignmentTag;
}

std::string text_of_error(int error) {
  return std::system_category().message(error);
}

}  // namespace

struct TcpLink::Moving final : Transfer {
  Moving(int with, int number, Space room) : Transfer(with), tag(number), place(room) {}

  const int tag;
  const Space place;
  bool is_over = false;  // guarded by the link's mutex
};

TcpLink::TcpLink(int rank, std::vector<Peer> peers, std::chrono::milliseconds timeout)
    : Link(rank, std::move(peers), timeout),
      connections_(this->peers().size()),
      wake_descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake_descriptor_ < 0) {
    throw Error("no eventfd for a link between workers: " + text_of_error(errno));
  }
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    connections_[i].rank = static_cast<int>(i);
  }
  thread_ = std::thread([this] { run(); });
}

TcpLink::~TcpLink() {
  leave(false);
  ::close(wake_descriptor_);
}

void TcpLink::connect(int rank, int descriptor, const LinkKeys& keys) {
  const std::lock_guard lock(mutex_);
  ISO_CHECK(rank >= 0 && rank < size() && rank != this->rank(), "a connection to a rank that is not there");
  const int on = 1;
  (void)setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // some sockets are not of TCP
  (void)setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  if (fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK) < 0) {
    throw Error("a socket to " + name_of(peer(rank)) + " cannot be used: " + text_of_error(errno));
  }
  Connection& connection = to(rank);
  connection.sealing.emplace(keys.outgoing);
  connection.unsealing.emplace(keys.incoming);
  connection.descriptor = descriptor;
  connection.heard = Clock::now();
  wake();
}

void TcpLink::leave(bool orderly) {
  {
    std::unique_lock lock(mutex_);
    if (!closing_ && !failure_) {
      for (Connection& connection : connections_) {
        if (orderly && connection.descriptor >= 0) {
          queue(connection, SealedFrame(kGoodbyeTag, std::string()));
        }
      }
      if (!orderly) {
        const Peer& self = peer(rank());
        fail_now(failure_of(PeerLostError("lost " + name_of(self) + " (it left the job)", {self})));
      }
    }
    closing_ = true;
    wake();
    (void)news_.wait_for(lock, stop_ ? Clock::duration::zero() : kFarewell, [this] {
      return std::ranges::all_of(connections_, [](const Connection& connection) {
        return connection.descriptor < 0 || connection.outgoing.empty();
      });
    });
    stop_ = true;
    fail_now({.kind = "Error", .text = "this worker has closed the job"});  // whoever still waits here ends
    wake();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  for (Connection& connection : connections_) {
    if (const int descriptor = std::exchange(connection.descriptor, -1); descriptor >= 0) {
      ::close(descriptor);
    }
  }
}

void TcpLink::lose(int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  end(to(rank), why);
}

std::optional<Failure> TcpLink::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// What others ask for.

void TcpLink::require_usable(const Connection& connection) const {
  if (failure_) {
    raise(*failure_);
  }
  if (connection.rank != rank() && (connection.left || connection.descriptor < 0)) {
    throw closed_early({peer(connection.rank)});
  }
}

void TcpLink::tell(int rank, int tag, std::string message) {
  const std::lock_guard lock(mutex_);
  require_usable(to(rank));
  if (rank == this->rank() && is_message(tag)) {
    if (tag == kAssignmentTag) {
      messages_.emplace_back(rank, std::move(message));
    } else {
      requests_.push_back({.rank = rank, .tag = tag, .message = std::move(message)});
    }
    changed();
    return;
  }
  queue(to(rank), SealedFrame(tag, std::move(message)));
}

std::shared_ptr<Transfer> TcpLink::send(int rank, int tag, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  require_usable(to(rank));
  auto transfer = std::make_shared<Moving>(rank, tag, Space{});
  queue(to(rank), SealedFrame(tag, bytes), transfer);
  return transfer;
}

std::shared_ptr<Transfer> TcpLink::receive(int rank, int tag, Space place) {
  const std::lock_guard lock(mutex_);
  Connection& connection = to(rank);
  require_usable(connection);
  auto transfer = std::make_shared<Moving>(rank, tag, place);
  connection.places.push_back(transfer);
  if (rank == this->rank()) {
    deliver_to_myself();
  } else if (connection.stalled) {
    find_place(connection);
    wake();
  }
  return transfer;
}

bool TcpLink::ended(Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  auto& moving = static_cast<Moving&>(transfer);
  if (!moving.is_over && failure_) {
    raise(*failure_);
  }
  return moving.is_over;
}

std::optional<Request> TcpLink::take_request() {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    raise(*failure_);
  }
  if (requests_.empty()) {
    return std::nullopt;
  }
  Request request = std::move(requests_.front());
  requests_.pop_front();
  return request;
}

std::optional<std::string> TcpLink::take_message(int rank) {
  const std::lock_guard lock(mutex_);
  require_usable(to(rank));
  const auto found = std::ranges::find(messages_, rank, &std::pair<int, std::string>::first);
  if (found == messages_.end()) {
    return std::nullopt;
  }
  std::string message = std::move(found->second);
  messages_.erase(found);
  return message;
}

void TcpLink::fail(const Failure& why) {
  const std::lock_guard lock(mutex_);
  fail_now(why);
}

void TcpLink::drain(Transfers& transfers) {
  const std::lock_guard lock(mutex_);
  if (!failure_) {  // this worker closes the job while others send it something or wait for it
    fail_now(failure_of(closed_early({peer(rank())})));
  }
  transfers.clear();
}

std::uint64_t TcpLink::events() {
  const std::lock_guard lock(mutex_);
  return events_;
}

void TcpLink::idle(std::uint64_t events, Clock::duration /*waited*/, bool /*serves*/) {
  std::unique_lock lock(mutex_);
  (void)news_.wait_for(lock, kLongestIdle, [&] { return events_ != events; });
}

void TcpLink::say_alive() {
  const std::lock_guard lock(mutex_);
  for (Connection& connection : connections_) {
    if (!failure_ && connection.descriptor >= 0 && connection.outgoing.empty()) {
      queue(connection, SealedFrame(kAliveTag, std::string()));
    }
  }
}

// The coordinator keeps the time of those whom others wait for, so an answer of its may take long. Values and answers
// come from shards that pause for so long at most.
bool TcpLink::is_late(int rank, Clock::duration waited, bool for_message) {
  const std::lock_guard lock(mutex_);
  const auto silent = rank == this->rank() ? Clock::duration::zero() : Clock::now() - to(rank).heard;
  return std::min(silent, waited) > timeout() || (!for_message && waited > 2 * timeout());
}

// How bytes move.

void TcpLink::changed() {
  ++events_;
  news_.notify_all();
}

void TcpLink::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_descriptor_, &one, sizeof one);
}

void TcpLink::queue(Connection& connection, SealedFrame frame, std::shared_ptr<Moving> transfer) {
  connection.outgoing.push_back({.frame = std::move(frame), .transfer = std::move(transfer)});
  if (connection.rank == rank()) {
    deliver_to_myself();
    return;
  }
  if (connection.outgoing.size() == 1) {
    write(connection);
  }
  if (!connection.outgoing.empty()) {
    wake();
  }
}

void TcpLink::deliver_to_myself() {
  Connection& mine = to(rank());
  for (auto next = mine.outgoing.begin(); next != mine.outgoing.end();) {
    const auto place =
        std::ranges::find(mine.places, next->frame.tag(), [](const auto& waiting) { return waiting->tag; });
    if (place == mine.places.end()) {
      ++next;
      continue;
    }
    const Bytes bytes = next->frame.body();
    ISO_CHECK(bytes.size() == (*place)->place.size(), "a place of another size than what comes");
    std::ranges::copy(bytes, (*place)->place.begin());
    (*place)->is_over = true;
    if (next->transfer) {
      next->transfer->is_over = true;
    }
    mine.places.erase(place);
    next = mine.outgoing.erase(next);
    changed();
  }
}

void TcpLink::write(Connection& connection) {
  std::size_t written = 0;
  while (!connection.outgoing.empty() && connection.descriptor >= 0 && written < kAtATime) {
    SealedFrame& frame = connection.outgoing.front().frame;
    const Bytes rest = frame.rest(*connection.sealing);
    const ssize_t count =
        ::send(connection.descriptor, rest.data(), std::min(rest.size(), kAtATime), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        // What it said before is still to be read, and may say why; reading finds the end after it.
        connection.outgoing.clear();
        changed();
      }
      return;
    }
    frame.advance(static_cast<std::size_t>(count), *connection.sealing);
    written += static_cast<std::size_t>(count);
    if (frame.is_sent()) {
      if (const auto& transfer = connection.outgoing.front().transfer) {
        transfer->is_over = true;
      }
      connection.outgoing.pop_front();
      changed();
    }
  }
}

void TcpLink::read(Connection& connection) {
  std::size_t taken = 0;
  while (connection.descriptor >= 0 && !connection.stalled && taken < kAtATime) {
    const Space target = target_of(connection);
    const ssize_t count = ::recv(connection.descriptor, target.data(), std::min(target.size(), kAtATime), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      return;
    }
    if (count <= 0) {
      end(connection, count == 0 ? "it closed the connection" : text_of_error(errno));
      return;
    }
    taken += static_cast<std::size_t>(count);
    connection.heard = Clock::now();
    take(connection, target.first(static_cast<std::size_t>(count)));
  }
}

// These bytes have come to where target_of() said.
void TcpLink::take(Connection& connection, Bytes bytes) {
  if (connection.deaf) {
    return;
  }
  if (connection.head_got < kHead) {
    connection.head_got += bytes.size();
    if (connection.head_got < kHead) {
      return;
    }
    std::ranges::copy(Bytes(connection.head).last<FrameSeal::kSize>(), connection.seal.begin());
    connection.unsealing->update(Bytes(connection.head).first<FrameHead::kSize>());
    if (!connection.unsealing->is(connection.seal)) {
      refuse(connection);
      return;
    }
    begin_frame(connection);
  } else if (connection.got < connection.coming.length) {
    connection.unsealing->update(bytes);
    connection.got += bytes.size();
  } else {
    connection.seal_got += bytes.size();
  }
  if (connection.stalled || connection.got < connection.coming.length) {
    return;
  }
  if (connection.coming.length == 0) {
    end_frame(connection);
  } else if (connection.seal_got == FrameSeal::kSize) {
    if (connection.unsealing->is(connection.seal)) {
      end_frame(connection);
    } else {
      refuse(connection);
    }
  }
}

// Where the next bytes go.
Space TcpLink::target_of(Connection& connection) {
  static thread_local std::array<std::byte, std::size_t{1} << 16> nowhere;
  if (connection.deaf) {
    return nowhere;
  }
  if (connection.head_got < kHead) {
    return Space(connection.head).subspan(connection.head_got);
  }
  const std::uint64_t left = connection.coming.length - connection.got;
  if (left == 0) {
    return Space(connection.seal).subspan(connection.seal_got);
  }
  const auto got = static_cast<std::size_t>(connection.got);
  if (!connection.message.empty()) {
    return std::as_writable_bytes(std::span(connection.message)).subspan(got);
  }
  if (connection.into) {
    return Space(connection.arrived).subspan(got, static_cast<std::size_t>(left));
  }
  return Space(nowhere).first(static_cast<std::size_t>(std::min<std::uint64_t>(left, nowhere.size())));
}

void TcpLink::begin_frame(Connection& connection) {
  FrameHead& coming = connection.coming;
  ByteReader reader({reinterpret_cast<const char*>(connection.head.data()), FrameHead::kSize});
  reader(coming.tag, coming.length);
  connection.got = 0;
  connection.seal_got = 0;
  connection.message.clear();
  connection.into.reset();
  const std::uint64_t length = coming.length;
  const int tag = coming.number();
  if (failure_) {
    return;  // nobody wants it
  }
  if (is_message(tag) || tag == kFailureTag) {
    if (length > kMostMessage) {
      blame(connection, "permitted: " + std::to_string(kMostMessage) + " bytes");
    } else {
      connection.message.resize(static_cast<std::size_t>(length));
    }
  } else if (tag == kAliveTag) {
    if (length != 0) {
      blame(connection, "permitted: 0 bytes");
    }
  } else {
    find_place(connection);
  }
}

void TcpLink::find_place(Connection& connection) {
  const int tag = connection.coming.number();
  const auto place = std::ranges::find(connection.places, tag, [](const auto& waiting) { return waiting->tag; });
  connection.stalled = place == connection.places.end() && tag == kGradientTag;
  if (connection.stalled) {
    return;
  }
  if (place == connection.places.end()) {
    blame(connection, "which nobody has asked for");
  } else if ((*place)->place.size() != connection.coming.length) {
    blame(connection, "permitted: " + std::to_string((*place)->place.size()) + " bytes");
  } else {
    connection.into = *place;
    connection.arrived.resize(std::max(connection.arrived.size(), connection.into->place.size()));
    connection.places.erase(place);
  }
}

void TcpLink::end_frame(Connection& connection) {
  const int tag = connection.coming.number();
  connection.head_got = 0;
  if (const std::shared_ptr<Moving> into = std::exchange(connection.into, nullptr)) {
    std::ranges::copy(Bytes(connection.arrived).first(into->place.size()), into->place.begin());
    into->is_over = true;
    changed();
    return;
  }
  if (failure_) {
    return;
  }
  if (tag == kFailureTag) {
    try {
      fail_now(decode<Failure>(connection.message));
    } catch (const Error& error) {
      blame(connection, error.what());
    }
  } else if (tag == kAssignmentTag) {
    messages_.emplace_back(connection.rank, std::move(connection.message));
  } else if (is_message(tag)) {
    connection.left |= tag == kGoodbyeTag;
    requests_.push_back({.rank = connection.rank, .tag = tag, .message = std::move(connection.message)});
  }
  connection.message.clear();
  changed();
}

// A frame that makes no sense: nothing after it can be read either.
void TcpLink::blame(const Connection& connection, const std::string& what) {
  const Peer& sender = peer(connection.rank);
  const std::string frame = " sent a frame of kind " + std::to_string(connection.coming.number()) + " and " +
                            std::to_string(connection.coming.length) + " bytes; ";
  fail_now(failure_of(PeerError(name_of(sender) + frame + what, {sender})));
}

// What comes from there is not what was sent there.
void TcpLink::refuse(Connection& connection) {
  const Peer& sender = peer(connection.rank);
  connection.deaf = true;
  fail_now(failure_of(PeerError(
      "what came from " + name_of(sender) +
          " has not the seal of this job: somebody on the way has changed, repeated or left out a part of it",
      {sender})));
}

void TcpLink::end(Connection& connection, const std::string& why) {
  if (connection.descriptor >= 0) {
    ::close(std::exchange(connection.descriptor, -1));
  }
  for (const Outgoing& next : connection.outgoing) {
    if (next.transfer && connection.left) {
      next.transfer->is_over = true;
    }
  }
  connection.outgoing.clear();
  connection.stalled = false;
  if (!closing_ && (!connection.left || !connection.places.empty())) {
    const Peer& lost = peer(connection.rank);
    fail_now(failure_of(
        connection.left ? closed_early({lost}) : PeerLostError("lost " + name_of(lost) + " (" + why + ")", {lost})));
  }
  changed();
}

// From now on nothing touches the memory of transfers: a frame that is half sent goes on from a copy.
void TcpLink::fail_now(const Failure& why) {
  if (failure_) {
    return;
  }
  failure_ = why;
  for (Connection& connection : connections_) {
    connection.places.clear();
    connection.into.reset();  // what still comes of it goes nowhere
    connection.stalled = false;
    std::deque<Outgoing> outgoing = std::exchange(connection.outgoing, {});
    if (connection.descriptor < 0) {
      continue;
    }
    if (!outgoing.empty() && outgoing.front().frame.is_begun()) {
      Outgoing& half = outgoing.front();
      half.frame.keep_body();
      half.transfer.reset();
      connection.outgoing.push_back(std::move(half));
    }
    if (!stop_) {
      connection.outgoing.push_back({.frame = SealedFrame(kFailureTag, encode(why)), .transfer = nullptr});
    }
  }
  requests_.clear();
  messages_.clear();
  changed();
  wake();
}

void TcpLink::run() {
  std::vector<pollfd> polled;
  std::vector<std::size_t> ranks;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) {
        return;
      }
      polled.assign(1, {.fd = wake_descriptor_, .events = POLLIN, .revents = 0});
      ranks.clear();
      for (const Connection& connection : connections_) {
        if (connection.descriptor >= 0) {
          const int wanted = (connection.stalled ? 0 : POLLIN) | (connection.outgoing.empty() ? 0 : POLLOUT);
          polled.push_back({.fd = connection.descriptor, .events = static_cast<short>(wanted), .revents = 0});
          ranks.push_back(static_cast<std::size_t>(connection.rank));
        }
      }
    }
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) {
      fail({.kind = "Error", .text = "waiting for other workers: " + text_of_error(errno)});
      return;
    }
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    (void)!::read(wake_descriptor_, &count, sizeof count);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      Connection& connection = connections_[ranks[i]];
      const int happened = polled[i + 1].revents;
      if (connection.descriptor != polled[i + 1].fd) {
        continue;
      }
      if ((happened & POLLOUT) != 0) {
        write(connection);
      }
      if (connection.stalled && (happened & (POLLHUP | POLLERR)) != 0) {
        end(connection, "it closed the connection");
      } else if ((happened & (POLLIN | POLLHUP | POLLERR)) != 0) {
        read(connection);
      }
    }
  }
}

}  // namespace isochron::server
