// Who takes part in a job and what they share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/core/curve/curve.h"

namespace isochron {

/// Stable for the life of a job: a worker that leaves takes its id along, one that joins brings a new one.
using WorkerId = std::uint64_t;

struct BatchBounds {
  std::int64_t min_batch = 1;
  std::int64_t max_batch = kNoLimit;
};

struct Worker {
  WorkerId id = 0;
  std::string kind = "cpu";           // workers of one kind share the shape of their time curve
  double weight = 0.0;                // nominal relative speed (cores, FLOP/s); 0: unknown
  std::int64_t min_batch = 1;         // >= 0
  std::int64_t max_batch = kNoLimit;  // memory ceiling, >= min_batch
  std::int64_t granularity = 1;       // batch sizes are multiples of it, >= 1
  double offset_seconds = 0.0;        // communication of this worker that cannot overlap with computing, >= 0
  std::string name;                   // for people; may be empty
  double former_speed = 0.0;          // samples a second in an earlier run; 0: unknown, or the job is under way
};

struct Roster {
  std::vector<Worker> workers;
  std::int64_t global_batch = 0;  // B: the batch sizes of every step add up to it
  /// 1: batch sizes are numbers of samples. More, where samples cost differently: they are amounts of work, of which a
  /// sample of mean cost has so many.
  std::int64_t units_per_sample = 1;

  /// Throws std::invalid_argument naming the field, the value and what is permitted: no workers, ids that repeat,
  /// bounds that cannot hold B, granularities that do not divide one another.
  void validate() const;
};

}  // namespace isochron
