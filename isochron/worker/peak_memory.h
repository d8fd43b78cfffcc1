// The most memory that this process has held since it was asked to forget.
#pragma once

#include <c10/core/Device.h>

namespace isochron::worker {

class PeakMemory {
 public:
  explicit PeakMemory(c10::Device device) : device_(device) {}

  /// What is held now is the most so far.
  void reset() const;
  /// Resident memory on a CPU; what the allocator has reserved on a GPU. 0 if the system does not say.
  [[nodiscard]] double bytes() const;

 private:
  c10::Device device_;
};

}  // namespace isochron::worker
