// The state of a run in Prometheus's text exposition format (version 0.0.4), for a scrape or a text-file collector.
//
// Feed it the records of the run; text() describes the run as of the last one. O(workers) per call. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "isochron/core/trace/run_log.h"
#include "isochron/core/trace/run_meter.h"

namespace isochron {

class PrometheusMetrics {
 public:
  explicit PrometheusMetrics(RunHeader header);

  void observe(const StepRecord& record);
  void observe(const UpdateRecord& record);
  /// A worker that is gone is no longer reported, and one that joined gets its name.
  void observe(const EventRecord& record);

  [[nodiscard]] std::string text() const;

 private:
  template <class Record>
  void observe(const Record& record, std::span<const WorkerStep> workers);

  RunHeader header_;
  std::map<WorkerId, std::string> labels_;     // {worker="fast",kind="cpu"}
  std::map<WorkerId, WorkerStep> last_steps_;  // of the workers that are there
  RunMeter meter_;
  std::int64_t last_step_ = 0;
  double last_seconds_ = 0.0;
  double learning_rate_factor_ = 1.0;
  std::int64_t steps_ = 0;
  double samples_ = 0.0;
  std::int64_t adjustments_ = 0;
};

}  // namespace isochron
