// A link over MPI's point-to-point messages, and how to wait on them without burning a core.
//
// Requests come on a communicator of their own, where servers look for anything from anybody; all that is expected by
// its receiver goes over a second one. An error of MPI, also of another rank's, makes both unusable for everybody (they
// are revoked); what is in flight is brought to its end, since MPI may still write to its buffers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "isochron/core/peer_error.h"
#include "isochron/server/link.h"

namespace isochron {

class MpiLink final : public server::Link {
 public:
  // Collective over `members`, which is duplicated; `peers` are by rank.
  MpiLink(MPI_Comm members, std::vector<Peer> peers, std::chrono::milliseconds timeout);
  ~MpiLink() override;

  void tell(int rank, int tag, std::string message) override;
  std::shared_ptr<server::Transfer> send(int rank, int tag, server::Bytes bytes) override;
  std::shared_ptr<server::Transfer> receive(int rank, int tag, server::Space place) override;
  bool ended(server::Transfer& transfer) override;
  std::optional<server::Request> take_request() override;
  std::optional<std::string> take_message(int rank) override;
  void fail(const Failure& why) override;
  void drain(server::Transfers& transfers) override;
  void idle(std::uint64_t events, Clock::duration waited, bool serves) override;

 protected:
  bool is_late(int rank, Clock::duration waited, bool for_message) override;

 private:
  struct Told {
    std::string message;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  [[nodiscard]] MPI_Comm comm_of(int tag) const;
  // The message that has been found. Throws PeerError if it is too long.
  [[nodiscard]] std::string read(MPI_Message& message, const MPI_Status& status) const;

  MPI_Comm requests_ = MPI_COMM_NULL;
  MPI_Comm expected_ = MPI_COMM_NULL;
  std::mutex mutex_;  // guards what was told and may still be on its way
  std::list<Told> told_;
  std::atomic<bool> whole_ = true;  // nothing has failed
};

}  // namespace isochron
