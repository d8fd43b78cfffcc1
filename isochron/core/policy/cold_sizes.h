// What the first step with a batch size costs one worker: a GPU chooses kernels and finds memory for it, torch.compile
// and XLA compile. Learned from workers that report such steps as cold; the others have none. O(log n) for n sizes.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "isochron/core/state.h"
#include "isochron/core/telemetry.h"

namespace isochron {

class ColdSizes {
 public:
  /// A step that the worker has computed.
  void observe(const Reading& reading);

  /// Whether it has reported a cold step.
  [[nodiscard]] bool any() const { return cold_steps_ > 0; }
  /// By how many seconds a step with `batch` is expected to be longer than later ones; 0 for a size that it has had.
  [[nodiscard]] double seconds(std::int64_t batch) const;

  void exchange(StateExchange& state);

 private:
  std::vector<std::int64_t> known_;  // sorted
  std::int64_t cold_steps_ = 0;      // reported so far
  std::int64_t pending_batch_ = 0;   // of a cold step that no step with the same batch has followed yet; 0: none
  double pending_seconds_ = 0.0;     // that it took
  std::int64_t differences_ = 0;     // between a cold step and the next one with its batch
  double mean_difference_ = 0.0;     // seconds
};

}  // namespace isochron
