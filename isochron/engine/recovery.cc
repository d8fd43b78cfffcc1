#include "isochron/engine/recovery.h"

#include <algorithm>
#include <string>
#include <utility>

#include "isochron/engine/checkpoint_transfer.h"
#include "isochron/engine/handshake.h"
#include "isochron/engine/listeners.h"
#include "isochron/engine/out_of_memory.h"

namespace isochron {

Recovery::Recovery(
    const JobOptions& options,
    Membership& membership,
    Replica& replica,
    TrainedModel& model,
    Steps& steps,
    StepClock& clock,
    std::unique_ptr<Admission> admission)
    : options_(options),
      membership_(membership),
      replica_(replica),
      model_(model),
      steps_(steps),
      clock_(clock),
      admission_(std::move(admission)) {
}

void Recovery::recover_from(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerError& lost) {
    warn(options_, lost.what());
    recover(suspects_of(lost));
  } catch (const std::exception&) {
    if (!is_out_of_memory(error) || !steps_.can_be_undone() || !replica_.abandon_for_memory(steps_.is_chunkable())) {
      throw;
    }
    let_go();
    release_cached_memory();
    recover({});
  }
}

bool Recovery::try_together(const std::function<void()>& exchange) {
  bool worked = true;
  std::vector<Peer> suspects;
  try {
    exchange();
  } catch (const PeerError& error) {
    worked = false;
    suspects = suspects_of(error);
    warn(options_, error.what());
  }
  if (membership_.agree(worked)) {
    return true;
  }
  recover(suspects);
  return false;
}

void Recovery::recover(const std::vector<Peer>& suspects) {
  for (const Peer& peer : suspects) {
    warn(options_, "rank " + std::to_string(peer.rank) + " on " + peer.host + " does not answer and is evicted");
    replica_.note_eviction(peer.rank);
  }
  let_go();
  adopt(membership_.recover(*this, suspects));
}

// Lets go of everything that is built on the group.
void Recovery::let_go() {
  steps_.leave_group();
  model_.leave_group();
}

void Recovery::catch_up(const Settlement& settlement) {
  if (const auto record = replica_.finish_unreported(settlement, clock_.now())) {
    tell_step(options_, *record);
  }
  const auto& behind = settlement.behind;
  if (membership_.rank() == settlement.leader && !behind.empty()) {
    const Checkpoint state = model_.pack(replica_.state());
    for (const int rank : behind) {
      send_checkpoint(membership_.group(), state, rank);
    }
  } else if (std::ranges::find(behind, membership_.rank()) != behind.end()) {
    const Checkpoint state = receive_checkpoint(membership_.group(), settlement.leader);
    replica_.take_over(model_.unpack(state, "the state of another worker"));
    if (replica_.joined() && replica_.last_step()) {
      tell_step(options_, *replica_.last_step());
    }
  }
}

// Local: all have the same state now, and a group that works.
void Recovery::adopt(const Settlement& settlement) {
  const int rank = membership_.rank();
  if (!replica_.joined()) {
    const auto clock = [&settlement](int of) { return settlement.clocks[static_cast<std::size_t>(of)]; };
    clock_.go_forward(clock(settlement.leader) - clock(rank));
    admission_.reset();
  }
  newcomer_is_due_ = false;
  const std::int64_t chunk_size = replica_.chunk_size();
  tell_events(options_, replica_.adopt(settlement, rank, clock_.now()));
  if (replica_.chunk_size() != chunk_size) {
    warn(
        options_,
        "computes its batches in micro-batches of " + std::to_string(replica_.chunk_size()) + " samples from now on");
  }
  model_.enter_group(membership_.group());
  release_free_memory();  // states that travelled and old groups would stay as holes in the heap
}

void Recovery::note_step(const StepOutcome& outcome) {
  newcomer_is_due_ = outcome.newcomer;
  // One after the other; further requests wait.
  if (replica_.rank() == 0 && options_.join_requests && !outcome.stop && !membership_.expects_newcomer()) {
    if (const auto request = options_.join_requests()) {
      membership_.invite(
          request->command, request->host, request->gone, introduce(options_), [this](const std::string& text) {
            warn(options_, text);
          });
    }
  }
}

void Recovery::admit() {
  let_go();
  try {
    adopt(membership_.admit(*this));
  } catch (const PeerError& error) {
    adopt(membership_.recover(*this, suspects_of(error)));
  }
}

bool Recovery::join() {
  let_go();
  const auto settlement = membership_.join(*admission_, *this, introduce(options_));
  if (!settlement) {
    came_too_late_ = true;
    return false;
  }
  adopt(*settlement);
  return true;
}

}  // namespace isochron
