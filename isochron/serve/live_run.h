// A run while it happens, shared between who reports it and those who look at it.
//
// Safe for any number of threads. Adding a record costs O(workers) and never waits for a reader's network. A page costs
// the trainer's memory, so a live one shows fewer bins than a report: still more than a screen has columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "isochron/core/trace/prometheus.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/view/page_data.h"
#include "isochron/view/run_view.h"

namespace isochron::serve {

class LiveRun {
 public:
  /// Workers times bins: a page of about a megabyte.
  static constexpr std::size_t kCells = view::RunView::kDefaultCells / 4;

  explicit LiveRun(const RunHeader& header) : view_(header, kCells), metrics_(header) {}

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
  /// Without text if there is nothing new.
  [[nodiscard]] Message next(const view::Since& since);
  /// What a page that was made when the run had `records` records has. Lists count as not there.
  [[nodiscard]] static view::Since since_records(std::int64_t records) { return {.records = records}; }

 private:
  std::mutex mutex_;
  view::RunView view_;
  PrometheusMetrics metrics_;
  bool ended_ = false;
};

}  // namespace isochron::serve
