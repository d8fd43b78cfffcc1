#include "isochron/io/run_log_reader.h"

#include <stdexcept>
#include <utility>

#include "isochron/io/bounded_json.h"
#include "isochron/io/step_line.h"

namespace isochron::io {
namespace {

using nlohmann::json;

constexpr int kMaxLineDepth = 2;  // the root is 0, a list of workers 1, a member of it 2

/// What is wrong with a line; next() adds the place.
Reason read_reason(const json& line) {
  std::string name;
  read_required(line, "reason", name);
  for (auto candidate = Reason::kStarted;; candidate = static_cast<Reason>(static_cast<int>(candidate) + 1)) {
    if (to_string(candidate) == name) {
      return candidate;
    }
    if (candidate == Reason::kNoTelemetry) {
      refuse_type("reason", "the name of a reason");
    }
  }
}

RunHeader read_header(const json& line) {
  std::int64_t schema = 0;
  read_required(line, "schema", schema);
  if (schema != kRunLogSchema) {
    refuse("schema is " + std::to_string(schema) + "; permitted: " + std::to_string(kRunLogSchema));
  }
  RunHeader header;
  read_required(line, "program", header.program);
  read_required(line, "version", header.version);
  read_required(line, "policy", header.policy);
  read_required(line, "cluster", header.cluster);
  read_required(line, "global_batch", header.global_batch);
  read_required(line, "seed", header.seed);
  read_optional(line, "samples_per_epoch", header.samples_per_epoch);
  read_optional(line, "total_steps", header.total_steps);
  read_optional(line, "model", header.model);
  read_optional(line, "dataset", header.dataset);
  read_optional(line, "sync", header.sync);
  for (const json& member : array_member(line, "workers")) {
    if (!member.is_object()) {
      refuse_type("workers", "objects");
    }
    RunHeader::Member& worker = header.workers.emplace_back();
    read_required(member, "id", worker.id);
    read_required(member, "name", worker.name);
    read_required(member, "kind", worker.kind);
  }
  return header;
}

template <class Value>
void read_column(const json& line, const WorkerColumn<Value>& column, std::vector<WorkerStep>& workers) {
  const char* const key = column.name.data();
  if (column.optional && !line.contains(key)) {
    return;
  }
  const json& values = array_member(line, key);
  if (values.size() != workers.size()) {
    refuse(
        std::string(key) + " has " + std::to_string(values.size()) + " entries; permitted: one per worker, " +
        std::to_string(workers.size()));
  }
  for (std::size_t i = 0; i < workers.size(); ++i) {
    read(values[i], key, column.of(workers[i]));
  }
}

/// A line with a staleness is an update, that of its only worker.
RunLogLine step_or_update(StepRecord&& record, std::int64_t staleness) {
  if (staleness < 0) {
    return std::move(record);
  }
  if (record.workers.size() != 1) {
    refuse("workers has " + std::to_string(record.workers.size()) + " entries; permitted with a staleness: 1");
  }
  return UpdateRecord{
      .step = record.step,
      .epoch = record.epoch,
      .position = record.position,
      .seconds = record.seconds,
      .worker = record.workers.front(),
      .learning_rate_factor = record.learning_rate_factor,
      .changed = record.changed,
      .reason = record.reason,
      .words = std::move(record.words),
      .loss = record.loss,
      .staleness = staleness};
}

RunLogLine read_step(const json& line) {
  StepRecord record;
  std::int64_t staleness = -1;
  read_required(line, "step", record.step);
  read_optional(line, "epoch", record.epoch);
  read_optional(line, "position", record.position);
  read_required(line, "start", record.start_seconds);
  read_required(line, "seconds", record.seconds);
  record.workers.resize(array_member(line, "workers").size());
  std::apply([&](const auto&... column) { (read_column(line, column, record.workers), ...); }, kWorkerColumns);
  read_required(line, "learning_rate_factor", record.learning_rate_factor);
  read_required(line, "changed", record.changed);
  record.reason = read_reason(line);
  read_optional(line, "words", record.words);
  read_optional(line, "loss", record.loss);
  read_optional(line, "staleness", staleness);
  return step_or_update(std::move(record), staleness);
}

EventRecord read_event(const json& line) {
  EventRecord record;
  read_required(line, "step", record.step);
  read_required(line, "seconds", record.seconds);
  read_required(line, "event", record.event);
  read_required(line, "worker", record.worker);
  read_optional(line, "words", record.words);
  return record;
}

EvaluationRecord read_evaluation(const json& line) {
  EvaluationRecord record;
  read_required(line, "step", record.step);
  read_required(line, "seconds", record.seconds);
  read_required(line, "loss", record.loss);
  read_required(line, "accuracy", record.accuracy);
  return record;
}

RunLogLine read_record(const json& line) {
  if (!line.is_object()) {
    refuse("the line is not a JSON object");
  }
  std::string type;
  read_required(line, "type", type);
  if (type == "run") {
    return read_header(line);
  }
  if (type == "step") {
    return read_step(line);
  }
  if (type == "event") {
    return read_event(line);
  }
  if (type == "evaluation") {
    return read_evaluation(line);
  }
  refuse("type is unknown; permitted: run, step, event, evaluation");
}

}  // namespace

RunLogLine parse_run_log_line(const std::string& line) {
  StepRecord record;
  if (std::int64_t staleness = -1; read_step_line(line, record, staleness)) {
    return step_or_update(std::move(record), staleness);
  }
  return read_record(parse_bounded_json(line, kMaxLineDepth, "the line is not JSON"));
}

bool RunLogReader::read_line() {
  line_.clear();
  cut_off_ = false;
  for (int c = stream_.get(); c != std::istream::traits_type::eof(); c = stream_.get()) {
    if (c == '\n') {
      return true;
    }
    if (line_.size() == kMaxLineBytes) {
      refuse("the line has more than " + std::to_string(kMaxLineBytes) + " bytes; permitted: at most that many");
    }
    line_ += static_cast<char>(c);
  }
  cut_off_ = !line_.empty();
  return false;
}

void RunLogReader::check_link() {
  const auto parts = split_link(line_);
  if (line_number_ == 1) {
    chained_ = parts.has_value();
  }
  const bool fits = parts.has_value() == chained_ && (!chained_ || parts->link == next_link(link_, parts->line));
  if (!fits && broken_line_ == 0) {
    broken_line_ = line_number_;
  }
  link_ = parts ? parts->link : link_;
}

std::optional<RunLogLine> RunLogReader::next() {
  ++line_number_;
  try {
    if (!read_line()) {
      return std::nullopt;
    }
    check_link();
    RunLogLine record = parse_run_log_line(line_);
    const bool first = line_number_ == 1;
    if (first != std::holds_alternative<RunHeader>(record)) {
      refuse(first ? "the first line is no header; permitted: an object with type \"run\"" : "a second header");
    }
    return record;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(name_ + ":" + std::to_string(line_number_) + ": " + error.what());
  }
}

}  // namespace isochron::io
