#include "isochron/server/link.h"

#include <algorithm>
#include <utility>

#include "isochron/core/error.h"

namespace isochron::server {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(100);

}  // namespace

Link::Link(int rank, std::vector<Peer> peers, std::chrono::milliseconds timeout)
    : rank_(rank), peers_(std::move(peers)), timeout_(timeout) {
}

void Link::wait(Transfers& transfers, const std::string& what) {
  const auto start = Clock::now();
  auto looked = start;
  try {
    while (true) {
      const std::uint64_t seen = events();
      if (std::ranges::all_of(transfers, [this](const auto& transfer) { return ended(*transfer); })) {
        transfers.clear();
        return;
      }
      const auto waited = Clock::now() - start;
      std::vector<Peer> late;
      for (const auto& transfer : transfers) {
        const bool known = std::ranges::find(late, transfer->peer, &Peer::rank) != late.end();
        if (!known && is_late(transfer->peer, waited, false) && !ended(*transfer)) {
          late.push_back(peer(transfer->peer));
        }
      }
      if (!late.empty()) {
        const std::string silence = " has not answered for " + std::to_string(timeout_.count()) + " ms";
        throw TimeoutError(what + " timed out: " + names_of(late) + silence, late);
      }
      look(looked);
      idle(seen, waited, false);
    }
  } catch (...) {
    try {
      give_up(what);
    } catch (...) {
      drain(transfers);
      throw;
    }
  }
}

std::string Link::await_message(int rank, const std::string& what) {
  const auto start = Clock::now();
  auto looked = start;
  try {
    while (true) {
      const std::uint64_t seen = events();
      if (std::optional<std::string> message = take_message(rank)) {
        return std::move(*message);
      }
      const auto waited = Clock::now() - start;
      if (is_late(rank, waited, true)) {
        const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
        throw TimeoutError(
            what + " timed out after " + std::to_string(milliseconds) + " ms, waiting for " + name_of(peer(rank)),
            {peer(rank)});
      }
      look(looked);
      idle(seen, waited, false);
    }
  } catch (...) {
    give_up(what);
  }
}

void Link::look(Clock::time_point& looked) const {
  if (look_ && Clock::now() - looked > kBetweenLooks) {
    looked = Clock::now();
    look_();
  }
}

// Throws what is being handled, after the link has ended because of it.
void Link::give_up(const std::string& what) {
  try {
    throw;
  } catch (const PeerError& error) {
    fail(failure_of(error));
    if (error.peers().empty()) {
      throw PeerLostError(what + " failed: " + error.what(), {});
    }
    throw;
  } catch (const Error& error) {
    fail(failure_of(error));
    throw;
  } catch (...) {
    const Peer& self = peer(rank_);
    fail(failure_of(PeerLostError("lost " + name_of(self) + " (it was interrupted)", {self})));
    throw;
  }
}

std::string name_of(const Peer& peer) {
  return "rank " + std::to_string(peer.rank) + " on " + peer.host;
}

std::string names_of(const std::vector<Peer>& peers) {
  std::string names;
  for (const Peer& peer : peers) {
    names += (names.empty() ? "" : ", ") + name_of(peer);
  }
  return names;
}

PeerLostError closed_early(std::vector<Peer> peers) {
  const std::string names = names_of(peers);
  return {names + " closed the job in the middle of an epoch, in which others wait for it", std::move(peers)};
}

Failure failure_of(const std::exception& error) {
  Failure failure{.kind = "Error", .text = error.what()};
  if (dynamic_cast<const NonFiniteError*>(&error) != nullptr) {
    failure.kind = "NonFiniteError";
  }
  if (const auto* const peer_error = dynamic_cast<const PeerError*>(&error)) {
    failure.kind = dynamic_cast<const TimeoutError*>(&error) != nullptr    ? "TimeoutError"
                   : dynamic_cast<const PeerLostError*>(&error) != nullptr ? "PeerLostError"
                                                                           : "PeerError";
    for (const Peer& peer : peer_error->peers()) {
      failure.ranks.push_back(peer.rank);
      failure.hosts.push_back(peer.host);
    }
  }
  return failure;
}

void raise(const Failure& failure) {
  std::vector<Peer> peers;
  for (std::size_t i = 0; i < std::min(failure.ranks.size(), failure.hosts.size()); ++i) {
    peers.push_back({.rank = static_cast<int>(failure.ranks[i]), .host = failure.hosts[i]});
  }
  if (failure.kind == "TimeoutError") {
    throw TimeoutError(failure.text, std::move(peers));
  }
  if (failure.kind == "PeerLostError") {
    throw PeerLostError(failure.text, std::move(peers));
  }
  if (failure.kind == "PeerError") {
    throw PeerError(failure.text, std::move(peers));
  }
  if (failure.kind == "NonFiniteError") {
    throw NonFiniteError(failure.text);
  }
  throw Error(failure.text);
}

}  // namespace isochron::server
