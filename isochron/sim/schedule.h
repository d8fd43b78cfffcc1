// A cluster's changes in the order in which a run meets them, each handed out once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "isochron/sim/cluster.h"

namespace isochron::sim {

/// One change of one worker.
struct Occurrence {
  std::size_t worker = 0;   // its number in the specification
  double at_seconds = 0.0;  // when it happens; 0 if it is bound to a step
  std::optional<double> cores;
  Event event = Event::kSpeed;
};

class Schedule {
 public:
  /// `cluster` must be valid.
  explicit Schedule(const ClusterSpec& cluster);

  /// The next change that is due once `step` has begun and `seconds` have passed; those bound to a step come first,
  /// those at the same moment in the order of the file.
  std::optional<Occurrence> take(std::int64_t step, double seconds);

  /// When the next change that is bound to a time happens; infinity if there is none.
  [[nodiscard]] double next_seconds() const;

 private:
  struct AtStep {
    std::int64_t step = 0;
    Occurrence occurrence;
  };
  std::vector<AtStep> by_step_;
  std::vector<Occurrence> by_time_;
  std::size_t steps_taken_ = 0;
  std::size_t times_taken_ = 0;
};

}  // namespace isochron::sim
