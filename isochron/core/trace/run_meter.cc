#include "isochron/core/trace/run_meter.h"

#include <algorithm>

namespace isochron {

void RunMeter::add(const StepRecord& record) {
  step_seconds_.push_back(record.seconds);
  seconds_ += record.seconds;
  double sum = 0.0;
  double longest = 0.0;
  for (const WorkerStep& worker : record.workers) {
    samples_ += static_cast<double>(worker.batch);
    sum += worker.compute_seconds;
    longest = std::max(longest, worker.compute_seconds);
  }
  balance_sum_ += longest > 0.0 ? sum / (static_cast<double>(record.workers.size()) * longest) : 1.0;
}

double RunMeter::balance() const {
  return steps() == 0 ? 0.0 : balance_sum_ / static_cast<double>(steps());
}

}  // namespace isochron
