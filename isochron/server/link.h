// How the workers of an asynchronous job reach each other: messages, and values as they lie in memory, from rank to
// rank. Over MPI (engine/async/mpi_link.h) or TCP (tcp_link.h).
//
// Nothing waits here but wait() and await_message(). What is sent to one rank with one tag arrives in the order of
// sending. The first failure ends the link for everybody: every call throws it from then on, here and, as far as the
// transport can say so, on all other ranks; nothing touches the memory of transfers any more after drain(). One thread
// that serves and one that asks may share a link.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isochron/core/dispatch/messages.h"
#include "isochron/core/peer_error.h"

namespace isochron::server {

using Bytes = std::span<const std::byte>;
using Space = std::span<std::byte>;

// Requests, which come from anybody:
inline constexpr int kPushTag = 1;
inline constexpr int kPullTag = 2;
inline constexpr int kReportTag = 3;
inline constexpr int kGoodbyeTag = 4;  // the rank has closed the job
// What its receiver expects. Only a gradient may come before there is a place for it:
inline constexpr int kAssignmentTag = 5;
inline constexpr int kGradientTag = 6;
inline constexpr int kAnswerTag = 7;
inline constexpr int kFirstValuesTag = 16;  // plus the number of the chunk

struct Request {
  int rank = 0;
  int tag = 0;
  std::string message;
};

// Something under way.
struct Transfer {
  explicit Transfer(int with) : peer(with) {}
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  virtual ~Transfer() = default;

  const int peer;
};
using Transfers = std::vector<std::shared_ptr<Transfer>>;

class Link {
 public:
  using Clock = std::chrono::steady_clock;
  // Bytes. Who tells more has a defect, or damaged memory, and is an error that names it wherever it comes.
  static constexpr std::uint64_t kMostMessage = std::uint64_t{256} << 20;

  // `peers` are by rank. `timeout` is that of every wait for somebody who is silent.
  Link(int rank, std::vector<Peer> peers, std::chrono::milliseconds timeout);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(peers_.size()); }
  [[nodiscard]] const std::vector<Peer>& peers() const { return peers_; }
  [[nodiscard]] const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

  // A message of up to kMostMessage, which the link keeps for as long as it needs it.
  virtual void tell(int rank, int tag, std::string message) = 0;
  // Bytes that stay as they are, or a place for exactly as many, until the transfer has ended.
  virtual std::shared_ptr<Transfer> send(int rank, int tag, Bytes bytes) = 0;
  virtual std::shared_ptr<Transfer> receive(int rank, int tag, Space place) = 0;
  virtual bool ended(Transfer& transfer) = 0;

  virtual std::optional<Request> take_request() = 0;
  // One that was told with kAssignmentTag.
  virtual std::optional<std::string> take_message(int rank) = 0;

  // Until all have ended. Throws TimeoutError, which names those who are late, or what ended the link.
  void wait(Transfers& transfers, const std::string& what);
  std::string await_message(int rank, const std::string& what);
  // Called now and then while either waits; what it throws ends the wait, and the link.
  void watch(std::function<void()> look) { look_ = std::move(look); }

  // Ends the use of the link on all ranks, as far as the transport permits it with the reason; the first one counts.
  virtual void fail(const Failure& why) = 0;
  // Brings what was started to its end, after fail(), or when this rank closes the job in the middle of it.
  virtual void drain(Transfers& transfers) = 0;

  // A count of what has happened, and a pause until it changes, which may end at any time; `waited` so far.
  [[nodiscard]] virtual std::uint64_t events() { return 0; }
  // `serves`: by the thread that serves.
  virtual void idle(std::uint64_t events, Clock::duration waited, bool serves) = 0;
  // Ends the use of the link here; the others go on. Without a goodbye they take this rank for lost.
  virtual void leave(bool /*orderly*/) {}
  // Whether the others are told that a rank leaves, and why the link has failed.
  [[nodiscard]] virtual bool tells_others() const { return false; }
  // The thread that serves is alive, though it may have nothing to answer for now.
  virtual void say_alive() {}

 protected:
  // Somebody who is waited for counts as late.
  [[nodiscard]] virtual bool is_late(int rank, Clock::duration waited, bool for_message) = 0;

 private:
  void look(Clock::time_point& looked) const;
  [[noreturn]] void give_up(const std::string& what);

  const int rank_;
  const std::vector<Peer> peers_;
  const std::chrono::milliseconds timeout_;
  std::function<void()> look_;
};

// "rank 3 on HOST"
std::string name_of(const Peer& peer);
std::string names_of(const std::vector<Peer>& peers);
// They closed the job, which is in order as long as nobody waits for them.
PeerLostError closed_early(std::vector<Peer> peers);

// An error as it travels, and back.
Failure failure_of(const std::exception& error);
[[noreturn]] void raise(const Failure& failure);

}  // namespace isochron::server
