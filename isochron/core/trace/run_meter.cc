#include "isochron/core/trace/run_meter.h"

#include <algorithm>
#include <numeric>

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
  step_seconds_.push_back(record.seconds);
  add_seconds(record);
  for (const WorkerStep& worker : record.workers) {
    samples_ += static_cast<double>(worker.batch);
  }
  balance_sum_ += balance_after(record);
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
  std::vector<double> seconds;
  if (record.staleness < 0) {
    for (const WorkerStep& worker : record.workers) {
      seconds.push_back(worker.compute_seconds);
    }
  } else {
    iteration_seconds_[record.workers.empty() ? 0 : record.workers.front().id] = record.seconds;
    for (const auto& [id, last] : iteration_seconds_) {
      seconds.push_back(last);
    }
  }
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  const double longest = seconds.empty() ? 0.0 : std::ranges::max(seconds);
  return longest > 0.0 ? sum / (static_cast<double>(seconds.size()) * longest) : 1.0;
}

double RunMeter::balance() const {
  return steps() == 0 ? 0.0 : balance_sum_ / static_cast<double>(steps());
}

}  // namespace isochron
