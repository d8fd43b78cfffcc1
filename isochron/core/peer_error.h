// Failures of a running job that are nobody's mistake: a peer that is late, and a peer that is gone. Both name the
// ranks and hosts concerned as far as they are known; after either one the communicator is unusable, the process is
// not.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "isochron/core/error.h"

namespace isochron {

struct Peer {
  int rank = 0;
  std::string host;
  int process = 0;  // its number on that host
};

class PeerError : public Error {
 public:
  PeerError(const std::string& message, std::vector<Peer> peers) : Error(message), peers_(std::move(peers)) {}

  // The lost ones; of a time-out those who keep the others waiting. Empty if it is not known who.
  const std::vector<Peer>& peers() const { return peers_; }

 private:
  std::vector<Peer> peers_;
};

class TimeoutError : public PeerError {
 public:
  using PeerError::PeerError;
};

class PeerLostError : public PeerError {
 public:
  using PeerError::PeerError;
};

}  // namespace isochron
