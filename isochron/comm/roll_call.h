// Who is missing from a collective? MPI does not tell, so a rank whose collective timed out asks all others how many
// they have started; those that are behind, or silent, are the ones it waited for. Costs one posted receive while all
// is well. Every rank answers from its progress thread, also while its main thread computes. Not thread-safe: the
// progress thread alone uses it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "isochron/core/peer_error.h"

namespace isochron {

class RollCall {
 public:
  // Collective over `parent`.
  explicit RollCall(MPI_Comm parent);
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;
  ~RollCall();

  // Answers what was asked meanwhile; `started` is this rank's number of collectives.
  void serve(std::int64_t started);

  struct Missing {
    Peer peer;
    std::optional<std::int64_t> started;  // none: no answer
  };
  // Ranks that have started fewer collectives than this one. Takes up to `patience` if somebody keeps silent.
  std::vector<Missing> ask(std::int64_t started, std::chrono::milliseconds patience);

  const std::vector<Peer>& peers() const { return peers_; }  // by rank
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

 private:
  void post_receive();

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  std::vector<Peer> peers_;
  MPI_Request question_ = MPI_REQUEST_NULL;
  std::int64_t answer_ = 0;  // a member, since MPI may read it after the call
};

// Who may put whom out of a job: whether the silent ones are the side that may, among `size` ranks; those known to be
// `dead` belong to none. Where a network falls apart each side sees the other as silent, and could kill it; if both
// did, nobody would be left. So the larger side may, and of equal halves the one with the first rank. Pure.
bool is_outvoted(const std::vector<RollCall::Missing>& missing, const std::vector<int>& dead, int size);

}  // namespace isochron
