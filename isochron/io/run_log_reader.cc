#include "isochron/io/run_log_reader.h"

#include <stdexcept>

#include <nlohmann/json.hpp>

#include "isochron/io/step_line.h"

namespace isochron::io {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxLineBytes = std::size_t{8} << 20U;
constexpr int kMaxDepth = 2;  // the root is 0, a list of workers 1, a member of it 2
constexpr std::int64_t kMaxInteger = std::int64_t{1} << 53U;

/// What is wrong with a line; next() adds the place.
[[noreturn]] void refuse(const std::string& message) {
  throw std::invalid_argument(message);
}

json parse_json(const std::string& line) {
  const auto limit_depth = [](int depth, json::parse_event_t event, const json&) {
    const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth > kMaxDepth) {
      refuse("values are nested too deeply; permitted: " + std::to_string(kMaxDepth + 1) + " levels");
    }
    return true;
  };
  try {
    return json::parse(line, limit_depth);
  } catch (const json::exception&) {
    refuse("the line is not JSON");
  }
}

const json& at(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) {
    refuse(std::string(key) + " is missing");
  }
  return *found;
}

[[noreturn]] void refuse_value(const char* key, std::string_view permitted) {
  refuse(std::string(key) + " is of another type or out of range; permitted: " + std::string(permitted));
}

void read(const json& value, const char* key, std::string& text) {
  if (!value.is_string()) {
    refuse_value(key, "text");
  }
  text = value.get<std::string>();
}

void read(const json& value, const char* key, bool& flag) {
  if (!value.is_boolean()) {
    refuse_value(key, "true or false");
  }
  flag = value.get<bool>();
}

void read(const json& value, const char* key, double& number) {
  if (!value.is_number() && !value.is_null()) {
    refuse_value(key, "a number or null");
  }
  number = value.is_null() ? kUnknown : value.get<double>();
}

void read(const json& value, const char* key, std::int64_t& number) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxInteger)) {
    refuse_value(key, "a whole number from 0 to 2^53");
  }
  number = value.get<std::int64_t>();
}

void read(const json& value, const char* key, std::uint64_t& number) {
  if (!value.is_number_unsigned()) {
    refuse_value(key, "a whole number from 0 to 2^64 - 1");
  }
  number = value.get<std::uint64_t>();
}

void read(const json& value, const char* key, Reason& reason) {
  std::string name;
  read(value, key, name);
  for (auto candidate = Reason::kStarted;; candidate = static_cast<Reason>(static_cast<int>(candidate) + 1)) {
    if (to_string(candidate) == name) {
      reason = candidate;
      return;
    }
    if (candidate == Reason::kNoTelemetry) {
      refuse_value(key, "the name of a reason");
    }
  }
}

template <class Value>
void required(const json& object, const char* key, Value& value) {
  read(at(object, key), key, value);
}

template <class Value>
void optional(const json& object, const char* key, Value& value) {
  if (const auto found = object.find(key); found != object.end()) {
    read(*found, key, value);
  }
}

const json& array_at(const json& object, const char* key) {
  const json& array = at(object, key);
  if (!array.is_array()) {
    refuse_value(key, "an array");
  }
  return array;
}

RunHeader read_header(const json& line) {
  std::int64_t schema = 0;
  required(line, "schema", schema);
  if (schema != kRunLogSchema) {
    refuse("schema is " + std::to_string(schema) + "; permitted: " + std::to_string(kRunLogSchema));
  }
  RunHeader header;
  required(line, "program", header.program);
  required(line, "version", header.version);
  required(line, "policy", header.policy);
  required(line, "cluster", header.cluster);
  required(line, "global_batch", header.global_batch);
  required(line, "seed", header.seed);
  optional(line, "samples_per_epoch", header.samples_per_epoch);
  optional(line, "total_steps", header.total_steps);
  optional(line, "model", header.model);
  optional(line, "dataset", header.dataset);
  for (const json& member : array_at(line, "workers")) {
    if (!member.is_object()) {
      refuse_value("workers", "objects");
    }
    RunHeader::Member& worker = header.workers.emplace_back();
    required(member, "id", worker.id);
    required(member, "name", worker.name);
    required(member, "kind", worker.kind);
  }
  return header;
}

template <class Value>
void read_column(const json& line, const char* key, std::vector<WorkerStep>& workers, Value WorkerStep::* field) {
  const json& column = array_at(line, key);
  if (column.size() != workers.size()) {
    refuse(
        std::string(key) + " has " + std::to_string(column.size()) + " entries; permitted: one per worker, " +
        std::to_string(workers.size()));
  }
  for (std::size_t i = 0; i < workers.size(); ++i) {
    read(column[i], key, workers[i].*field);
  }
}

StepRecord read_step(const json& line) {
  StepRecord record;
  required(line, "step", record.step);
  optional(line, "epoch", record.epoch);
  optional(line, "position", record.position);
  required(line, "start", record.start_seconds);
  required(line, "seconds", record.seconds);
  record.workers.resize(array_at(line, "workers").size());
  read_column(line, "workers", record.workers, &WorkerStep::id);
  read_column(line, "batch_sizes", record.workers, &WorkerStep::batch);
  read_column(line, "starts", record.workers, &WorkerStep::start_seconds);
  read_column(line, "compute_seconds", record.workers, &WorkerStep::compute_seconds);
  read_column(line, "wait_seconds", record.workers, &WorkerStep::wait_seconds);
  read_column(line, "exchange_seconds", record.workers, &WorkerStep::exchange_seconds);
  required(line, "learning_rate_factor", record.learning_rate_factor);
  required(line, "changed", record.changed);
  required(line, "reason", record.reason);
  optional(line, "words", record.words);
  optional(line, "loss", record.loss);
  optional(line, "staleness", record.staleness);
  return record;
}

EventRecord read_event(const json& line) {
  EventRecord record;
  required(line, "step", record.step);
  required(line, "seconds", record.seconds);
  required(line, "event", record.event);
  required(line, "worker", record.worker);
  optional(line, "words", record.words);
  return record;
}

EvaluationRecord read_evaluation(const json& line) {
  EvaluationRecord record;
  required(line, "step", record.step);
  required(line, "seconds", record.seconds);
  required(line, "loss", record.loss);
  required(line, "accuracy", record.accuracy);
  return record;
}

RunLogLine read_record(const json& line) {
  if (!line.is_object()) {
    refuse("the line is not a JSON object");
  }
  std::string type;
  required(line, "type", type);
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
  if (StepRecord record; read_step_line(line, record)) {
    return record;
  }
  return read_record(parse_json(line));
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
