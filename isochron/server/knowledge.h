// What a survivor of a lost worker tells the others of an asynchronous job (session_recovery.cc): what it holds, which
// updates came to it and which it knows of. Bytes and back by core/dispatch/bytes.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/core/dispatch/messages.h"
#include "isochron/core/sample/ledger.h"

namespace isochron::server {

struct Knowledge {
  bool trains = true;
  bool at_barrier = false;  // it was told of the barrier, whose position and so on follow
  std::int64_t barrier_position = 0;
  bool stopping = false;
  std::int64_t stop_signal = 0;
  WorkerId worker = 0;
  std::int64_t holds_first = 0;  // samples of its iteration that is not in the records yet; none if both are equal
  std::int64_t holds_last = 0;
  std::int64_t rounds = 0;  // with bound 0: that are over
  double pulled_at = 0.0;
  std::vector<std::int64_t> chunks;   // that it has
  std::vector<Provenance> arrivals;   // of updates that came to it
  std::vector<UpdateRecord> records;  // that it knows
  std::string learning;               // of the controller, if the coordinator was here

  [[nodiscard]] Interval held() const { return {.first = holds_first, .last = holds_last}; }

  void exchange(auto& wire) {
    wire(
        trains,
        at_barrier,
        barrier_position,
        stopping,
        stop_signal,
        worker,
        holds_first,
        holds_last,
        rounds,
        pulled_at);
    wire(chunks, arrivals, records, learning);
  }
};

// Throws isochron::Error if it cannot be that of a job with so many chunks of parameters and samples in the epoch: the
// numbers index both.
void require_possible(const Knowledge& knowledge, std::int64_t chunks, std::int64_t samples);

// Chunks of gradients in a job, which are compared at a barrier.
struct UpdateCounts {
  std::int64_t sent = 0;
  std::int64_t applied = 0;

  void exchange(auto& wire) {
    wire(sent, applied);
    if constexpr (std::remove_reference_t<decltype(wire)>::kReads) {
      wire.require(is_count(sent) && is_count(applied), "a number of chunks is impossible");
    }
  }

 private:
  // All workers' can be added up.
  static bool is_count(std::int64_t number) { return number >= 0 && number <= std::int64_t{1} << 40; }
};

}  // namespace isochron::server
