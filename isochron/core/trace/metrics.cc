#include "isochron/core/trace/metrics.h"

#include <algorithm>
#include <cmath>

namespace isochron {
namespace {

bool computed(const WorkerStep& worker) {
  return worker.batch > 0 && std::isfinite(worker.compute_seconds) && worker.compute_seconds > 0.0;
}

}  // namespace

double balance(std::span<const WorkerStep> workers) {
  double sum = 0.0;
  double longest = 0.0;
  int count = 0;
  for (const WorkerStep& worker : workers) {
    if (computed(worker)) {
      sum += worker.compute_seconds;
      longest = std::max(longest, worker.compute_seconds);
      ++count;
    }
  }
  return count == 0 ? kUnknown : sum / (count * longest);
}

double utilization(const StepRecord& record) {
  double samples = 0.0;
  double speed = 0.0;
  for (const WorkerStep& worker : record.workers) {
    if (computed(worker)) {
      samples += static_cast<double>(worker.batch);
      speed += static_cast<double>(worker.batch) / worker.compute_seconds;
    }
  }
  return samples > 0.0 && record.seconds > 0.0 ? samples / speed / record.seconds : kUnknown;
}

}  // namespace isochron
