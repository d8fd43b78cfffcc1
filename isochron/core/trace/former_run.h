// How fast the workers of an earlier run were, so that a new run of them can begin balanced.
//
// The speed of a worker is the median of samples a second of computing over its last kFormerSteps steps: ratios of
// speeds at the split that the run ended with, whatever the curves and whatever policy dealt. O(workers) memory. Pure;
// not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "isochron/core/state.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/core/worker.h"

namespace isochron {

inline constexpr std::size_t kFormerSteps = 20;

struct FormerSpeed {
  std::string name;                 // of the worker, which a later run has again
  double samples_per_second = 0.0;  // > 0

  void exchange(StateExchange& state);
  bool operator==(const FormerSpeed&) const = default;
};

class FormerRun {
 public:
  void add(const RunHeader& header);
  void add(const StepRecord& record);
  void add(const UpdateRecord& record);
  /// Who joined is known by the name that the event has.
  void add(const EventRecord& record);
  void add(const EvaluationRecord& /*record*/) {}

  /// The speeds of the workers that have computed, by name.
  [[nodiscard]] std::vector<FormerSpeed> speeds() const;

 private:
  void add(const WorkerStep& step);

  std::map<WorkerId, std::string> names_;
  std::map<WorkerId, std::deque<double>> last_;  // samples a second
};

/// Tells the workers their speeds, by name; one that the earlier run did not have counts as its slowest. Throws
/// std::invalid_argument if it had none of them.
void take_over(std::span<const FormerSpeed> speeds, std::span<Worker> workers);

}  // namespace isochron
