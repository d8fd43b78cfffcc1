#include "isochron/core/trace/chrome_trace.h"

#include <cmath>

#include "isochron/core/trace/json.h"

namespace isochron {
namespace {

// Viewers treat process and thread 0 as the idle task, so numbering starts above it.
constexpr int kProcess = 1;
constexpr WorkerId kDecisions = 1;
constexpr WorkerId kFirstWorker = 2;

/// The format counts in microseconds; whole nanoseconds keep the text short.
double microseconds(double seconds) {
  return std::round(seconds * 1e9) / 1e3;
}

JsonObject event(std::string_view phase, std::string_view name, WorkerId thread) {
  JsonObject object;
  object.text("ph", phase).text("name", name).integer("pid", kProcess).integer("tid", thread);
  return object;
}

/// Every event but the first, which begin() writes, follows a comma.
std::string following(const JsonObject& object) {
  return ",\n" + object.str();
}

std::string thread_name(WorkerId thread, std::string_view name) {
  const std::string arguments = JsonObject().text("name", name).str();
  return following(event("M", "thread_name", thread).raw("args", arguments));
}

std::string span(std::string_view name, WorkerId worker, double start, double seconds, const std::string& arguments) {
  if (!std::isfinite(start) || !std::isfinite(seconds) || seconds <= 0.0) {
    return {};
  }
  return following(event("X", name, kFirstWorker + worker)
                       .number("ts", microseconds(start))
                       .number("dur", microseconds(seconds))
                       .raw("args", arguments));
}

/// In step a worker waits for the others once it has computed; else for its samples, before it starts.
std::string spans(const WorkerStep& worker, std::int64_t step, bool in_step) {
  const std::string arguments = JsonObject().integer("step", step).integer("batch", worker.batch).str();
  const double computed = worker.start_seconds + worker.compute_seconds;
  const double waits_from = in_step ? computed : worker.start_seconds - worker.wait_seconds;
  const double exchanges_from = in_step ? computed + worker.wait_seconds : computed;
  return span("compute", worker.id, worker.start_seconds, worker.compute_seconds, arguments) +
         span("wait", worker.id, waits_from, worker.wait_seconds, arguments) +
         span("exchange", worker.id, exchanges_from, worker.exchange_seconds, arguments);
}

std::string instant(std::string_view name, WorkerId thread, double seconds, std::int64_t step, std::string_view words) {
  if (!std::isfinite(seconds)) {
    return {};
  }
  const std::string arguments = JsonObject().integer("step", step).text("words", words).str();
  return following(event("i", name, thread).number("ts", microseconds(seconds)).text("s", "t").raw("args", arguments));
}

/// For a step or an update: the reason of a new split.
template <class Record>
std::string decision(const Record& record, double start) {
  return record.changed ? instant(to_string(record.reason), kDecisions, start, record.step, record.words) : "";
}

}  // namespace

ChromeTrace::Track& ChromeTrace::track(WorkerId worker) {
  const auto [place, is_new] = tracks_.try_emplace(worker);
  if (is_new) {
    place->second.name = "worker " + std::to_string(worker);
  }
  return place->second;
}

std::string ChromeTrace::begin() {
  const std::string title = header_.program + " " + header_.policy + " on " + header_.cluster;
  const std::string arguments = JsonObject().text("name", title).str();
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" +
                     event("M", "process_name", kDecisions).raw("args", arguments).str() +
                     thread_name(kDecisions, "decisions");
  for (const RunHeader::Member& member : header_.workers) {
    track(member.id).name = member.name;
    text += thread_name(kFirstWorker + member.id, member.name);
  }
  return text;
}

std::string ChromeTrace::add(const StepRecord& record) {
  return decision(record, record.start_seconds) + shares(record.workers, record.step, true);
}

std::string ChromeTrace::add(const UpdateRecord& record) {
  return decision(record, record.worker.start_seconds) + shares({&record.worker, 1}, record.step, false);
}

std::string ChromeTrace::shares(std::span<const WorkerStep> workers, std::int64_t step, bool in_step) {
  std::string text;
  for (const WorkerStep& worker : workers) {
    text += spans(worker, step, in_step);
    Track& counted = track(worker.id);
    if (counted.batch != worker.batch && std::isfinite(worker.start_seconds)) {
      counted.batch = worker.batch;
      text += following(event("C", "batch size of " + counted.name, kFirstWorker + worker.id)
                            .number("ts", microseconds(worker.start_seconds))
                            .raw("args", JsonObject().integer("samples", worker.batch).str()));
    }
  }
  return text;
}

std::string ChromeTrace::add(const EventRecord& record) {
  std::string text;
  if (is(record, Event::kJoin)) {
    track(record.worker).name = record.words;
    text += thread_name(kFirstWorker + record.worker, record.words);
  }
  return text + instant(record.event, kFirstWorker + record.worker, record.seconds, record.step, record.words);
}

}  // namespace isochron
