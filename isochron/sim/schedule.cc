#include "isochron/sim/schedule.h"

#include <algorithm>
#include <limits>

namespace isochron::sim {

Schedule::Schedule(const ClusterSpec& cluster) {
  for (const Change& change : cluster.changes) {
    for (std::size_t worker = 0; worker < cluster.workers.size(); ++worker) {
      if (change.worker != "*" && change.worker != cluster.workers[worker].name) {
        continue;
      }
      const Occurrence occurrence{
          .worker = worker,
          .at_seconds = change.at_seconds.value_or(0.0),
          .cores = change.cores,
          .event = change.event};
      if (change.at_step) {
        by_step_.push_back({.step = *change.at_step, .occurrence = occurrence});
      } else {
        by_time_.push_back(occurrence);
      }
    }
  }
  std::ranges::stable_sort(by_step_, {}, &AtStep::step);
  std::ranges::stable_sort(by_time_, {}, &Occurrence::at_seconds);
}

std::optional<Occurrence> Schedule::take(std::int64_t step, double seconds) {
  if (steps_taken_ < by_step_.size() && by_step_[steps_taken_].step <= step) {
    return by_step_[steps_taken_++].occurrence;
  }
  if (next_seconds() <= seconds) {
    return by_time_[times_taken_++];
  }
  return std::nullopt;
}

double Schedule::next_seconds() const {
  return times_taken_ < by_time_.size() ? by_time_[times_taken_].at_seconds : std::numeric_limits<double>::infinity();
}

}  // namespace isochron::sim
