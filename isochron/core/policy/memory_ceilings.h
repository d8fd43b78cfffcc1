// What a job learns about its workers' memory: the batch at which one ran out becomes its ceiling, which is raised
// again later with care, since memory may have been short only for a while.
//
// A worker that fails with b samples gets the ceiling 7/8 b (at least one below b). After a wait of 50 steps the
// ceiling rises by an eighth, again after every further wait; every failure doubles the worker's wait, up to 3,200
// steps. Replicated like the controller: the same calls give the same ceilings on all workers. Pure, not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "isochron/core/state.h"
#include "isochron/core/worker.h"

namespace isochron {

class MemoryCeilings {
 public:
  /// What to try after memory did not hold `batch` samples; at least 1.
  [[nodiscard]] static std::int64_t below(std::int64_t batch);

  /// `worker` ran out of memory at `step` with `batch` samples, 1 or more.
  void failed(WorkerId worker, std::int64_t batch, std::int64_t step);
  void forget(WorkerId worker);

  /// Where the ceilings together do not hold the global batch any more, the job would end, though the memory may be
  /// there again: forgets them all for a try. False, and none is forgotten, if there is none, or the try at this step
  /// is over.
  bool give_up(std::int64_t step);

  /// Raises what is due at `step`; a ceiling that reaches `highest`, such as the global batch, is forgotten. True if
  /// any changed.
  bool raise(std::int64_t step, std::int64_t highest);

  /// `limit`, or the ceiling if that is lower; not below `least`.
  [[nodiscard]] std::int64_t limit(WorkerId worker, std::int64_t least, std::int64_t limit) const;

  void exchange(StateExchange& state);

 private:
  struct Ceiling {
    WorkerId worker = 0;
    std::int64_t batch = 0;
    std::int64_t wait = 0;  // steps
    std::int64_t next_raise = 0;
    void exchange(StateExchange& state);
  };
  std::vector<Ceiling> ceilings_;
  std::int64_t given_up_at_ = -1;  // step
};

}  // namespace isochron
