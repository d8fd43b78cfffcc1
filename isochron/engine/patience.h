// How long a step may take before those who keep the others waiting are named: a multiple of what the last one took.
#pragma once

#include <atomic>
#include <cstdint>

#include "isochron/comm/world.h"

namespace isochron {

struct JobOptions;

class Patience {
 public:
  // Until a step has been measured, it is the time-out itself.
  explicit Patience(const JobOptions& options);

  // Any thread may ask afterwards. `options` and this must outlive the world.
  WorldOptions world_options(const JobOptions& options) const;
  void follow(double step_seconds);

 private:
  std::atomic<std::int64_t> milliseconds_;
};

}  // namespace isochron
