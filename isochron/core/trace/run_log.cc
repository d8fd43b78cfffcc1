#include "isochron/core/trace/run_log.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "isochron/core/trace/json.h"

namespace isochron {
namespace {

template <class T>
void add_column(JsonObject& line, const WorkerColumn<T>& column, std::span<const WorkerStep> workers) {
  if (column.optional && std::ranges::all_of(workers, [&](const WorkerStep& one) { return column.of(one) == 0; })) {
    return;
  }
  line.raw(column.name, json_array(workers, [&](const WorkerStep& worker) {
             if constexpr (std::is_floating_point_v<T>) {
               return json_number(column.of(worker));
             } else {
               return std::to_string(column.of(worker));
             }
           }));
}

}  // namespace

bool is(const EventRecord& record, Event event) {
  return record.event == to_string(event);
}

bool removes_worker(const EventRecord& record) {
  const EventKind* const kind = find_event(record.event);
  return kind != nullptr && kind->removes_worker;
}

bool sets_step(const EventRecord& record) {
  const EventKind* const kind = find_event(record.event);
  return kind != nullptr && kind->sets_step;
}

std::vector<RunHeader::Member> members_of(const std::vector<Worker>& workers) {
  std::vector<RunHeader::Member> members;
  members.reserve(workers.size());
  for (const Worker& worker : workers) {
    members.push_back({.id = worker.id, .name = worker.name, .kind = worker.kind});
  }
  return members;
}

std::string to_json(const RunHeader& header) {
  JsonObject line;
  line.text("type", "run")
      .integer("schema", kRunLogSchema)
      .text("program", header.program)
      .text("version", header.version)
      .text("policy", header.policy)
      .text("cluster", header.cluster)
      .integer("global_batch", header.global_batch)
      .integer("seed", header.seed);
  if (header.samples_per_epoch > 0) {
    line.integer("samples_per_epoch", header.samples_per_epoch);
  }
  if (header.total_steps > 0) {
    line.integer("total_steps", header.total_steps);
  }
  if (!header.model.empty()) {
    line.text("model", header.model);
  }
  if (!header.dataset.empty()) {
    line.text("dataset", header.dataset);
  }
  if (!header.sync.empty()) {
    line.text("sync", header.sync);
  }
  line.raw("workers", json_array(header.workers, [](const RunHeader::Member& member) {
             return JsonObject().integer("id", member.id).text("name", member.name).text("kind", member.kind).str();
           }));
  return line.str();
}

namespace {

/// What lines of steps and of updates have in common.
template <class Record>
JsonObject step_line(const Record& record, double start, std::span<const WorkerStep> workers) {
  JsonObject line;
  line.text("type", "step").integer("step", record.step);
  if (record.epoch >= 0) {
    line.integer("epoch", record.epoch);
  }
  if (record.position >= 0) {
    line.integer("position", record.position);
  }
  line.number("start", start).number("seconds", record.seconds);
  std::apply([&](const auto&... column) { (add_column(line, column, workers), ...); }, kWorkerColumns);
  line.number("learning_rate_factor", record.learning_rate_factor)
      .flag("changed", record.changed)
      .text("reason", to_string(record.reason));
  if (!record.words.empty()) {
    line.text("words", record.words);
  }
  if (!std::isnan(record.loss)) {
    line.number("loss", record.loss);
  }
  return line;
}

}  // namespace

std::string to_json(const StepRecord& record) {
  return step_line(record, record.start_seconds, record.workers).str();
}

std::string to_json(const UpdateRecord& record) {
  return step_line(record, record.worker.start_seconds, {&record.worker, 1})
      .integer("staleness", record.staleness)
      .str();
}

std::string to_json(const EventRecord& record) {
  JsonObject line;
  line.text("type", "event")
      .integer("step", record.step)
      .number("seconds", record.seconds)
      .text("event", record.event)
      .integer("worker", record.worker);
  if (!record.words.empty()) {
    line.text("words", record.words);
  }
  return line.str();
}

std::string to_json(const EvaluationRecord& record) {
  return JsonObject()
      .text("type", "evaluation")
      .integer("step", record.step)
      .number("seconds", record.seconds)
      .number("loss", record.loss)
      .number("accuracy", record.accuracy)
      .str();
}

}  // namespace isochron
