// Which batch sizes a device has computed. The first step with a size takes longer on a GPU, which chooses kernels and
// finds memory for it, so the time says nothing about the device's speed. CPUs do not care. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>

namespace isochron {

class KnownSizes {
 public:
  explicit KnownSizes(bool of_cpu) : of_cpu_(of_cpu) {}

  /// Whether the time of a step with this batch, just computed, says something.
  bool add(std::int64_t batch) { return !sizes_.insert(batch).second || of_cpu_; }
  [[nodiscard]] bool of_cpu() const { return of_cpu_; }

 private:
  bool of_cpu_;
  std::set<std::int64_t> sizes_;
};

}  // namespace isochron
