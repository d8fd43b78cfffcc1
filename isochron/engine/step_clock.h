// This worker's clock: seconds since the job began, and what a step took of the machine. Not thread-safe, but for
// readings.
#pragma once

#include <chrono>

#include "isochron/core/replica/step_report.h"
#include "isochron/engine/sync_batch_norm.h"

namespace isochron {

class StepClock {
 public:
  using Clock = std::chrono::steady_clock;

  // The job begins, on all workers at about the same moment.
  void start() { began_ = Clock::now(); }
  // The job is `seconds` older than this clock says. The times that workers report are compared, so a newcomer's clock
  // goes on from the others'.
  void go_forward(double seconds);
  double now() const { return since_start(Clock::now()); }
  double since_start(Clock::time_point moment) const;

  void begin_step();
  // At the last local gradient. `waits` were for other workers, within the step.
  StepReport measure(const SyncBatchNorm::Waits& waits) const;

 private:
  Clock::time_point began_;
  Clock::time_point step_began_;
  double cpu_began_ = 0.0;
};

}  // namespace isochron
