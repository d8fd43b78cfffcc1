// The state of a run in Prometheus's text exposition format (version 0.0.4), for a scrape or a text-file collector.
//
// Feed it the records of the run; text() describes the run as of the last one. O(workers) per call. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "isochron/core/trace/run_log.h"

namespace isochron {

class PrometheusMetrics {
 public:
  explicit PrometheusMetrics(RunHeader header);

  void observe(const StepRecord& record);
  /// A worker that is gone is no longer reported, and one that joined gets its name.
  void observe(const EventRecord& record);

  [[nodiscard]] std::string text() const;

 private:
  RunHeader header_;
  std::map<WorkerId, std::string> labels_;     // {worker="fast",kind="cpu"}
  std::map<WorkerId, WorkerStep> last_steps_;  // of the workers that are there
  StepRecord last_;                            // without its workers
  double samples_per_second_ = kUnknown;
  double balance_ = kUnknown;
  std::int64_t steps_ = 0;
  double samples_ = 0.0;
  std::int64_t adjustments_ = 0;
};

}  // namespace isochron
