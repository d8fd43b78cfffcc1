// The run log: JSON lines, one header, then one line per step, event and evaluation. Everything that draws or proves
// reads it.
//
// This file only turns records into text (no I/O); isochron/io reads it back and adds to every line its link in the
// chain (chain.h). Each line is an object whose `type` is "run" (the header), "step", "event" or "evaluation". What a
// step says of its workers is in columns, one entry for each worker; they are listed once, in kWorkerColumns, those of
// the usage in kUsageFields, and the writer, both readers, the messages, a replica's state, the live page and Python
// follow from that list. Fields that are unknown are left out; numbers that JSON cannot hold (NaN, infinities) become
// null.
//
// Steps are numbered from 0 without gaps. A "rollback" or a "resume" sets the number of the next step; the steps from
// there on that the log already holds did not happen. `epoch` and `position` say which samples a step used: the
// positions `position` and up of that epoch's permutation, dealt to the workers in their order by `batch_sizes`; by
// cost, in an order of that step's positions that follows from the works of the samples.
//
// A line of a step that has a `staleness` is an UpdateRecord: the update of one worker, the only one in its columns, in
// a run whose header says `sync`. All other lines of steps are StepRecords.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "isochron/core/policy/policy.h"
#include "isochron/core/telemetry.h"
#include "isochron/core/trace/event.h"
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
  std::int64_t samples_per_epoch = 0;  // what the last batch drops left out; 0: unknown
  std::int64_t total_steps = 0;        // of the run as it was meant; 0: unknown
  std::string model;                   // as the user wrote them; empty: unknown
  std::string dataset;
  // "asp", "ssp": a line of a step is one worker's update; "local": it is a round; "beside": its samples went along
  // with a step on other data, as many of them, and on into the next epoch; empty: all take steps together
  std::string sync;
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
  double start_seconds = 0.0;       // since the start of the run
  double compute_seconds = 0.0;     // to the last local gradient
  double wait_seconds = 0.0;        // for the others
  double exchange_seconds = 0.0;    // communication that did not overlap
  double inner_wait_seconds = 0.0;  // that part of the waiting which was within the step, as for BatchNorm's statistics
  MachineUsage usage;               // logged() of it
  double work = 0.0;                // by cost: what its samples cost, such as tokens, padding included; 0: by count
  double padding = 0.0;             // that part of it which is wasted on filling up to the longest
  bool operator==(const WorkerStep&) const = default;
};

template <class T>
struct WorkerColumn {
  std::string_view name;             // in the log
  std::string_view attribute;        // of a single worker, as in WorkerStep
  T WorkerStep::* member = nullptr;  // null: it is of the usage
  bool optional = false;             // left out if it is 0 for all; logs of before may lack it
  T MachineUsage::* usage = nullptr;

  [[nodiscard]] constexpr T& of(WorkerStep& step) const { return usage != nullptr ? step.usage.*usage : step.*member; }
  [[nodiscard]] constexpr const T& of(const WorkerStep& step) const {
    return usage != nullptr ? step.usage.*usage : step.*member;
  }
};

inline constexpr auto kUsageColumns = [] {
  std::array<WorkerColumn<double>, std::ranges::count_if(kUsageFields, &UsageField::logged)> columns;
  std::size_t count = 0;
  for (const UsageField& field : kUsageFields) {
    if (field.logged) {
      columns[count++] = {.name = field.name, .attribute = field.name, .optional = true, .usage = field.member};
    }
  }
  return columns;
}();

inline constexpr auto kWorkerColumns = std::tuple_cat(
    std::tuple{
        WorkerColumn{"workers", "id", &WorkerStep::id},
        WorkerColumn{"batch_sizes", "batch", &WorkerStep::batch},
        WorkerColumn{"starts", "start_seconds", &WorkerStep::start_seconds},
        WorkerColumn{"compute_seconds", "compute_seconds", &WorkerStep::compute_seconds},
        WorkerColumn{"wait_seconds", "wait_seconds", &WorkerStep::wait_seconds},
        WorkerColumn{"inner_wait_seconds", "inner_wait_seconds", &WorkerStep::inner_wait_seconds, /*optional=*/true},
        WorkerColumn{"exchange_seconds", "exchange_seconds", &WorkerStep::exchange_seconds},
    },
    kUsageColumns,
    std::tuple{
        WorkerColumn{"work", "work", &WorkerStep::work, /*optional=*/true},
        WorkerColumn{"padding", "padding", &WorkerStep::padding, /*optional=*/true},
    });

struct StepRecord {
  std::int64_t step = 0;
  std::int64_t epoch = -1;     // -1: unknown
  std::int64_t position = -1;  // of the step's first sample in the epoch's permutation; -1: unknown
  double start_seconds = 0.0;  // since the start of the run
  double seconds = 0.0;        // of the step as a whole
  std::vector<WorkerStep> workers;
  double learning_rate_factor = 1.0;
  bool changed = false;
  Reason reason = Reason::kKept;
  std::string words;
  double loss = kUnknown;
  bool operator==(const StepRecord&) const = default;
};

/// What one worker of an asynchronous run added to the model: ASP, SSP.
struct UpdateRecord {
  std::int64_t step = 0;       // its number in the log, which counts the updates of all workers
  std::int64_t epoch = -1;     // -1: unknown
  std::int64_t position = -1;  // of its first sample in the epoch's permutation; -1: unknown
  double seconds = 0.0;        // of the iteration as a whole, which begins at worker.start_seconds
  WorkerStep worker;
  double learning_rate_factor = 1.0;
  bool changed = false;
  Reason reason = Reason::kKept;
  std::string words;
  double loss = kUnknown;
  std::int64_t staleness = 0;  // updates of others between its pull and its push
  bool operator==(const UpdateRecord&) const = default;
};

struct EventRecord {
  std::int64_t step = 0;  // under way, or the coming one
  double seconds = 0.0;
  std::string event;    // a name of event.h, or of a later version of it
  WorkerId worker = 0;  // 0 as well if it is about the job
  std::string words;    // for people; of a join: the worker's name
  bool operator==(const EventRecord&) const = default;
};

/// As the header of a run names them.
[[nodiscard]] std::vector<RunHeader::Member> members_of(const std::vector<Worker>& workers);

/// Whether the record is of this event.
[[nodiscard]] bool is(const EventRecord& record, Event event);
/// Whether the event's worker takes no part in later steps.
[[nodiscard]] bool removes_worker(const EventRecord& record);
/// Whether the event's step is the number of the next step.
[[nodiscard]] bool sets_step(const EventRecord& record);

/// On data that the run does not train on.
struct EvaluationRecord {
  std::int64_t step = 0;  // steps done
  double seconds = 0.0;   // since the start of the run
  double loss = kUnknown;
  double accuracy = kUnknown;  // 0 .. 1
  bool operator==(const EvaluationRecord&) const = default;
};

/// One line each, without the line feed.
std::string to_json(const RunHeader& header);
std::string to_json(const StepRecord& record);
std::string to_json(const UpdateRecord& record);
std::string to_json(const EventRecord& record);
std::string to_json(const EvaluationRecord& record);

}  // namespace isochron
