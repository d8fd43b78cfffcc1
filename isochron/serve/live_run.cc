#include "isochron/serve/live_run.h"

#include <cstdint>

#include "isochron/core/trace/json.h"
#include "isochron/view/headline.h"
#include "isochron/view/page.h"

namespace isochron::serve {
namespace {

std::string name_of(const view::RunView& view) {
  const std::string& policy = view.header().policy;
  return policy.empty() ? "run" : policy;
}

/// One event. The data holds no line feed, since JSON escapes them.
std::string message(const std::string& event, const std::string& data, std::int64_t id) {
  return "event: " + event + "\nid: " + std::to_string(id) + "\ndata: " + data + "\n\n";
}

}  // namespace

void LiveRun::add(const StepRecord& record) {
  const std::lock_guard lock(mutex_);
  view_.add(record);
  metrics_.observe(record);
  changed_.notify_all();
}

void LiveRun::add(const UpdateRecord& record) {
  const std::lock_guard lock(mutex_);
  view_.add(record);
  metrics_.observe(record);
  changed_.notify_all();
}

void LiveRun::add(const EventRecord& record) {
  const std::lock_guard lock(mutex_);
  view_.add(record);
  metrics_.observe(record);
  changed_.notify_all();
}

void LiveRun::add(const EvaluationRecord& record) {
  const std::lock_guard lock(mutex_);
  view_.add(record);
  changed_.notify_all();
}

void LiveRun::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

std::string LiveRun::page() {
  const std::lock_guard lock(mutex_);
  return view::page({{.name = name_of(view_), .view = &view_}}, {.live = true});
}

std::string LiveRun::page_json() {
  const std::lock_guard lock(mutex_);
  return view::page_json({{.name = name_of(view_), .view = &view_}}, {.live = true});
}

std::string LiveRun::metrics() {
  const std::lock_guard lock(mutex_);
  return metrics_.text();
}

LiveRun::Message LiveRun::next(const view::Since& since, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto differs = [&] { return ended_ || view::now(view_) != since; };
  if (!changed_.wait_for(lock, patience, differs)) {
    return {.text = ": still here\n\n", .since = since};
  }
  const view::Since now = view::now(view_);
  if (!view::can_continue(view_, since)) {
    return {.text = message("reload", "{}", since.records), .since = now, .last = true};
  }
  if (now == since) {
    return {.text = message("end", "{}", now.records), .since = now, .last = true};
  }
  const std::string data =
      JsonObject()
          .raw("headline", view::script_safe(json_string(view::headline({{.name = name_of(view_), .view = &view_}}))))
          .raw("run", view::to_page_json(view_, name_of(view_), since))
          .str();
  return {.text = message("update", data, now.records), .since = now};
}

}  // namespace isochron::serve
