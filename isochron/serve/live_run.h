// A run while it happens, shared between who reports it and those who look at it.
//
// Safe for any number of threads. Adding a record costs O(workers) and never waits for a reader's network.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "isochron/core/trace/prometheus.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/view/page_data.h"
#include "isochron/view/run_view.h"

namespace isochron::serve {

class LiveRun {
 public:
  explicit LiveRun(const RunHeader& header) : view_(header), metrics_(header) {}

  void add(const StepRecord& record);
  void add(const UpdateRecord& record);
  void add(const EventRecord& record);
  void add(const EvaluationRecord& record);
  /// Nothing more will come: the run is over, or the server stops.
  void end();

  [[nodiscard]] std::string page();
  [[nodiscard]] std::string page_json();
  [[nodiscard]] std::string metrics();

  /// A message for a page that has what `since` says, in the format of server-sent events.
  struct Message {
    std::string text;
    view::Since since;  // what the page has after it
    bool last = false;  // nothing follows
  };
  /// Waits until there is something new, for `patience` at most; then the message only keeps the connection alive.
  [[nodiscard]] Message next(const view::Since& since, std::chrono::milliseconds patience);
  /// What a page that was made when the run had `records` records has. Lists count as not there.
  [[nodiscard]] static view::Since since_records(std::int64_t records) { return {.records = records}; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  view::RunView view_;
  PrometheusMetrics metrics_;
  bool ended_ = false;
};

}  // namespace isochron::serve
