#include "isochron/core/trace/run_meter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

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
  last_ = {};
  if (!std::isfinite(record.seconds) || record.seconds < 0.0) {
    return;
  }
  double samples = 0.0;
  for (const WorkerStep& worker : record.workers) {
    samples += static_cast<double>(worker.batch);
  }
  seconds_ += record.seconds;
  last_.samples_per_second = record.seconds > 0.0 ? samples / record.seconds : kUnknown;
  last_.balance = isochron::balance(record.workers);
  last_.utilization = isochron::utilization(record);
  count(samples, record.seconds);
}

void RunMeter::add(const UpdateRecord& record) {
  last_ = {};
  if (!std::isfinite(record.seconds) || record.seconds < 0.0) {
    return;
  }
  const WorkerStep& worker = record.worker;
  const auto known = std::ranges::find(iterations_, worker.id, &WorkerStep::id);
  WorkerStep& iteration = known == iterations_.end() ? iterations_.emplace_back() : *known;
  iteration = {.id = worker.id, .batch = worker.batch, .compute_seconds = record.seconds};
  cover(worker.start_seconds, worker.start_seconds + record.seconds);
  last_.samples_per_second = 0.0;
  for (const WorkerStep& one : iterations_) {
    last_.samples_per_second += one.compute_seconds > 0.0 ? static_cast<double>(one.batch) / one.compute_seconds : 0.0;
  }
  last_.balance = isochron::balance(iterations_);
  staleness_.add(record.staleness);
  count(static_cast<double>(worker.batch), record.seconds);
}

void RunMeter::add(const EventRecord& record) {
  if (removes_worker(record)) {
    std::erase_if(iterations_, [&](const WorkerStep& one) { return one.id == record.worker; });
  }
}

void RunMeter::count(double samples, double seconds) {
  samples_ += samples;
  step_seconds_.push_back(seconds);
  balance_.add(last_.balance);
  utilization_.add(last_.utilization);
}

void RunMeter::cover(double start, double end) {
  start = std::max(start, closed_until_);
  if (!(start < end)) {
    return;
  }
  auto next = covered_.upper_bound(start);
  if (next != covered_.begin() && std::prev(next)->second >= start) {
    --next;
    start = next->first;
  }
  while (next != covered_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = covered_.erase(next);
  }
  covered_.emplace(start, end);
  constexpr std::size_t kMostIntervals = 256;
  if (covered_.size() > kMostIntervals) {
    const auto oldest = covered_.begin();
    closed_until_ = oldest->second;
    seconds_ += oldest->second - oldest->first;
    covered_.erase(oldest);
  }
}

double RunMeter::seconds() const {
  double sum = seconds_;
  for (const auto& [start, end] : covered_) {
    sum += end - start;
  }
  return sum;
}

double RunMeter::samples_per_second() const {
  const double time = seconds();
  return time > 0.0 ? samples_ / time : kUnknown;
}

}  // namespace isochron
