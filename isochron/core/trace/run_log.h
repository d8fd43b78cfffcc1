// The run log: JSON lines, one header, then one line per step and per event. Everything that draws or proves reads it.
//
// This file only turns records into text (no I/O); isochron/io reads it back. Each line is an object whose `type` is
// "run" (the header), "step" or "event". What a step says of its workers is in columns: `workers` holds the ids, and
// `batch_sizes`, `starts`, `compute_seconds`, `wait_seconds` and `exchange_seconds` one entry for each. Fields that are
// unknown are left out; numbers that JSON cannot hold (NaN, infinities) become null.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/core/policy/policy.h"
#include "isochron/core/telemetry.h"
#include "isochron/core/worker.h"

namespace isochron {

/// Raised when a field changes its meaning; new fields alone do not raise it.
inline constexpr int kRunLogSchema = 1;

struct RunHeader {
  std::string program;  // "simulate", "train", …
  std::string version;
  std::string policy;
  std::string cluster;
  std::int64_t global_batch = 0;
  std::uint64_t seed = 0;
  struct Member {
    WorkerId id = 0;
    std::string name;
    std::string kind;
    bool operator==(const Member&) const = default;
  };
  std::vector<Member> workers;
  bool operator==(const RunHeader&) const = default;
};

struct WorkerStep {
  WorkerId id = 0;
  std::int64_t batch = 0;
  double start_seconds = 0.0;     // since the start of the run
  double compute_seconds = 0.0;   // to the last local gradient
  double wait_seconds = 0.0;      // for the others
  double exchange_seconds = 0.0;  // communication that did not overlap
  bool operator==(const WorkerStep&) const = default;
};

struct StepRecord {
  std::int64_t step = 0;
  double start_seconds = 0.0;  // since the start of the run
  double seconds = 0.0;        // of the step as a whole
  std::vector<WorkerStep> workers;
  double learning_rate_factor = 1.0;
  bool changed = false;
  Reason reason = Reason::kKept;
  std::string words;
  double loss = kUnknown;
  std::int64_t staleness = -1;  // ASP and SSP: of this push; -1: does not apply
  bool operator==(const StepRecord&) const = default;
};

struct EventRecord {
  std::int64_t step = 0;
  double seconds = 0.0;
  std::string event;  // "kill", "stop", "continue", "join", "speed", "out-of-memory", …
  WorkerId worker = 0;
  std::string words;  // for people; of a join: the worker's name
  bool operator==(const EventRecord&) const = default;
};

/// One line each, without the line feed.
std::string to_json(const RunHeader& header);
std::string to_json(const StepRecord& record);
std::string to_json(const EventRecord& record);

}  // namespace isochron
