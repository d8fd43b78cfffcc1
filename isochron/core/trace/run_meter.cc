#include "isochron/core/trace/run_meter.h"

#include <algorithm>
#include <cmath>

#include "isochron/core/trace/metrics.h"

namespace isochron {

std::int64_t StalenessCount::total() const {
  std::int64_t total = 0;
  for (const auto& [staleness, count] : updates) {
    total += count;
  }
  return total;
}

double StalenessCount::mean() const {
  double sum = 0.0;
  for (const auto& [staleness, count] : updates) {
    sum += static_cast<double>(staleness) * static_cast<double>(count);
  }
  return updates.empty() ? 0.0 : sum / static_cast<double>(total());
}

std::int64_t StalenessCount::max() const {
  return updates.empty() ? 0 : updates.rbegin()->first;
}

void RunMeter::add(const StepRecord& record) {
  last_balance_ = kUnknown;
  last_utilization_ = kUnknown;
  if (!std::isfinite(record.seconds)) {
    return;
  }
  step_seconds_.push_back(record.seconds);
  add_seconds(record);
  for (const WorkerStep& worker : record.workers) {
    samples_ += static_cast<double>(worker.batch);
  }
  last_balance_ = balance_after(record);
  last_utilization_ = record.staleness < 0 ? isochron::utilization(record) : kUnknown;
  balance_.add(last_balance_);
  utilization_.add(last_utilization_);
  if (record.staleness >= 0) {
    staleness_.add(record.staleness);
  }
}

void RunMeter::add_seconds(const StepRecord& record) {
  if (record.staleness < 0) {
    seconds_ += record.seconds;
    return;
  }
  const double end = record.start_seconds + record.seconds;
  if (end > covered_until_) {
    seconds_ += end - std::max(record.start_seconds, covered_until_);
    covered_until_ = end;
  }
}

double RunMeter::balance_after(const StepRecord& record) {
  if (record.staleness < 0) {
    return isochron::balance(record.workers);
  }
  if (!record.workers.empty()) {
    const WorkerStep& worker = record.workers.front();
    const auto last = std::ranges::find(iterations_, worker.id, &WorkerStep::id);
    WorkerStep& iteration = last == iterations_.end() ? iterations_.emplace_back(worker) : *last;
    iteration.batch = worker.batch;
    iteration.compute_seconds = record.seconds;
  }
  return isochron::balance(iterations_);
}

}  // namespace isochron
