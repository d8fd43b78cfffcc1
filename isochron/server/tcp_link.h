// A link over connected sockets, one to every other rank, which somebody else has opened and authenticated. One thread
// moves all bytes, straight from the memory of transfers.
//
// A frame is its tag (4 bytes) and its length (8 bytes), little-endian, and as many bytes; both parts are sealed
// (frame_seal.h), and nothing counts before its seal was looked at. So the bytes of a transfer come into memory of the
// connection first. One wrong seal, and nothing that comes on that connection counts any more: a PeerError that names
// the rank. No length is believed beyond its bound: that of a message, or of the place that waits for it. A frame that
// fits nothing is a PeerError that names its sender. A gradient for which there is no place yet stays in the socket,
// and what comes after it from that rank, too.
//
// A rank whose connection ends without a goodbye is lost. The failure travels ahead of the end of a connection, so that
// everybody tells of the same one. A rank is late when nothing has come from it for the time-out: threads that serve
// say now and then that they are alive.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "isochron/server/frame_seal.h"
#include "isochron/server/link.h"
#include "isochron/server/sealed_frame.h"

namespace isochron::server {

class TcpLink final : public Link {
 public:
  TcpLink(int rank, std::vector<Peer> peers, std::chrono::milliseconds timeout);
  ~TcpLink() override;

  // The socket to that rank, which is the link's from now on, and the keys of this connection alone. All are connected
  // before the first is used.
  void connect(int rank, int descriptor, const LinkKeys& keys);
  // Somebody else knows that the rank is gone, or what is wrong with it.
  void lose(int rank, const std::string& why);
  // Why it ended; none: it has not.
  std::optional<Failure> failure();

  void tell(int rank, int tag, std::string message) override;
  std::shared_ptr<Transfer> send(int rank, int tag, Bytes bytes) override;
  std::shared_ptr<Transfer> receive(int rank, int tag, Space place) override;
  bool ended(Transfer& transfer) override;
  std::optional<Request> take_request() override;
  std::optional<std::string> take_message(int rank) override;
  void fail(const Failure& why) override;
  void drain(Transfers& transfers) override;
  std::uint64_t events() override;
  void idle(std::uint64_t events, Clock::duration waited, bool serves) override;
  void say_alive() override;
  void leave(bool orderly) override;
  [[nodiscard]] bool tells_others() const override { return true; }

 protected:
  bool is_late(int rank, Clock::duration waited, bool for_message) override;

 private:
  static constexpr std::size_t kHead = FrameHead::kSize + FrameSeal::kSize;

  struct Moving;
  struct Outgoing {
    SealedFrame frame;
    std::shared_ptr<Moving> transfer;
  };
  struct Connection {
    int rank = 0;
    int descriptor = -1;  // -1: it has ended, or is that of this rank with itself
    bool left = false;    // it said goodbye
    Clock::time_point heard = Clock::now();
    std::deque<Outgoing> outgoing;
    std::deque<std::shared_ptr<Moving>> places;  // that wait for what comes
    std::optional<FrameSeal> sealing;            // none: that of this rank with itself
    std::optional<FrameSeal> unsealing;
    bool deaf = false;  // a seal was wrong
    // The frame that is coming in.
    std::array<std::byte, kHead> head{};
    std::size_t head_got = 0;
    FrameHead coming;
    std::uint64_t got = 0;
    std::string message;
    std::shared_ptr<Moving> into;
    std::vector<std::byte> arrived;  // of that transfer
    FrameSeal::Seal seal{};
    std::size_t seal_got = 0;
    bool stalled = false;  // there is no place for the gradient that comes
  };

  // All that follow need the mutex.
  Connection& to(int rank) { return connections_[static_cast<std::size_t>(rank)]; }
  void require_usable(const Connection& connection) const;
  void queue(Connection& connection, SealedFrame frame, std::shared_ptr<Moving> transfer = nullptr);
  void deliver_to_myself();
  void write(Connection& connection);
  void read(Connection& connection);
  void take(Connection& connection, Bytes bytes);
  Space target_of(Connection& connection);
  void begin_frame(Connection& connection);
  void find_place(Connection& connection);
  void end_frame(Connection& connection);
  void end(Connection& connection, const std::string& why);
  void blame(const Connection& connection, const std::string& what);
  void refuse(Connection& connection);
  void fail_now(const Failure& why);
  void changed();
  void wake() const;

  void run();

  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<Connection> connections_;  // by rank
  std::deque<Request> requests_;
  std::deque<std::pair<int, std::string>> messages_;  // by whom
  std::optional<Failure> failure_;
  std::uint64_t events_ = 0;
  bool closing_ = false;
  bool stop_ = false;
  int wake_descriptor_;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace isochron::server
