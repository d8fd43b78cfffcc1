// What workers, the coordinator and the shards of the parameters say to each other in asynchronous training. Times are
// seconds on the worker's clock since the job began. bytes.h turns them into bytes and back.
//
//   worker                                    coordinator (coordinator.h)
//   IterationReport                     -->
//                                       <--   Assignment: samples, or the barrier
//   worker                                    shard (shard_ledger.h)
//   PullHeader                          -->
//                                       <--   values
//   PushHeader, gradient                -->   applies it
//                                       <--   PushAnswer
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/core/dispatch/bytes.h"
#include "isochron/core/policy/controller.h"
#include "isochron/core/telemetry.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/core/worker.h"

namespace isochron {

/// "I am free", with what there is to say of the iteration before.
struct IterationReport {
  std::int64_t sequence = 0;     // of this worker's reports; one that is sent again keeps its number
  bool finished = false;         // an iteration, whose update is applied; the rest of this block is about it
  std::int64_t batch = 0;        // samples
  double start = 0.0;            // it was told to begin
  double seconds = 0.0;          // from then to the moment at which the shards had its update
  double compute_seconds = 0.0;  // of that, up to the last local gradient, parameters at hand
  double waited = 0.0;           // before it, for being told to begin
  MachineUsage usage = kUnknownUsage;
  bool warm = true;  // false: its time says nothing, such as that of a device's first batch of this size
  double loss = kUnknown;
  double rate_factor = 1.0;  // of the learning rate
  std::int64_t staleness = 0;

  std::int64_t stop = 0;   // 0: go on; 1: stop; 1 + n: stop because of signal n
  std::string non_finite;  // why the job is to end: whose loss or gradient is not finite; empty: it is not to

  bool operator==(const IterationReport&) const = default;
};

/// What to do next.
struct Assignment {
  std::int64_t sequence = 0;  // of the report that it answers
  bool barrier = false;       // everything that may be used is; all come together
  // Otherwise: the samples at positions first to last of the epoch. At a barrier `last` is how far the epoch is.
  std::int64_t first = 0;
  std::int64_t last = 0;              // one past the end
  std::int64_t iteration = 0;         // of this worker; with bound 0, and at a barrier, of all: rounds that are over
  std::int64_t lead = 0;              // iterations ahead of the slowest
  std::int64_t round_samples = 0;     // with bound 0: of the round
  Decision decision;                  // the split that the coordinator goes by
  std::vector<UpdateRecord> records;  // updates that became known since this worker last asked
  bool stopping = false;
  std::int64_t stop_signal = 0;
  std::string non_finite;  // why the job is to end at once; empty: it is not
  std::string controller;  // at a barrier: its state, as State::serialize() writes it

  [[nodiscard]] std::int64_t batch() const { return last - first; }
};

/// Which samples an update stands for.
struct Provenance {
  WorkerId worker = 0;
  std::int64_t iteration = 0;  // of that worker; each is larger than the one before
  std::int64_t round = 0;      // with bound 0: of all workers
  std::int64_t epoch = 0;
  std::int64_t first = 0;  // positions of the epoch
  std::int64_t last = 0;

  [[nodiscard]] std::int64_t samples() const { return last - first; }
  bool operator==(const Provenance&) const = default;
};

/// Goes before the gradient of a chunk, or of all chunks of a shard.
struct PushHeader {
  std::int64_t chunk = 0;
  Provenance from;
  std::int64_t round_samples = 0;  // with bound 0: of all workers together; 0: the update is applied as it comes
  double weight = 1.0;             // with bound 0: of this gradient in the mean of the round
  double rate = 1.0;               // what the learning rate is, or is multiplied with
  bool skipped = false;            // there is no gradient, but the samples are used
  std::string settings;            // the framework's own, of its optimizer

  bool operator==(const PushHeader&) const = default;
};

struct PushAnswer {
  std::int64_t chunk = 0;
  std::int64_t iteration = 0;  // of the worker
  std::int64_t staleness = 0;  // updates of others since the worker last pulled; -1: it was there already
};
inline constexpr std::size_t kPushAnswerBytes = 24;

struct PullHeader {
  std::int64_t chunk = 0;
  WorkerId worker = 0;
  std::int64_t iteration = 0;  // of that worker, which the values are for
  std::int64_t rounds = 0;     // with bound 0: so many are over, and are to be in the values

  bool operator==(const PullHeader&) const = default;
};

/// Why somebody ends the job; it travels to all others.
struct Failure {
  std::string kind;  // the class of the error
  std::string text;
  std::vector<std::int64_t> ranks;  // of those who are lost or late
  std::vector<std::string> hosts;

  bool operator==(const Failure&) const = default;
};

template <class Wire>
void exchange(Wire& wire, MachineUsage& usage) {
  for (const UsageField& field : kUsageFields) {
    wire(usage.*field.member);
  }
}

template <class Wire>
void exchange(Wire& wire, IterationReport& report) {
  wire(report.sequence, report.finished, report.batch, report.start, report.seconds, report.compute_seconds);
  wire(report.waited, report.usage, report.warm, report.loss, report.rate_factor, report.staleness);
  wire(report.stop, report.non_finite);
}

template <class Wire>
void exchange(Wire& wire, Reason& reason) {
  auto number = static_cast<std::uint8_t>(reason);
  wire(number);
  if constexpr (Wire::kReads) {
    Wire::require(number <= static_cast<std::uint8_t>(kLastReason), "a reason is unknown");
    reason = static_cast<Reason>(number);
  }
}

template <class Wire>
void exchange(Wire& wire, Decision& decision) {
  wire(decision.step, decision.batch_sizes, decision.learning_rate_factor, decision.changed, decision.repaired);
  exchange(wire, decision.reason);
  wire(decision.words);
}

template <class Wire>
void exchange(Wire& wire, WorkerStep& step) {
  std::apply([&](const auto&... column) { wire(column.of(step)...); }, kWorkerColumns);
}

template <class Wire>
void exchange(Wire& wire, UpdateRecord& record) {
  wire(record.step, record.epoch, record.position, record.seconds, record.worker);
  wire(record.learning_rate_factor, record.changed);
  exchange(wire, record.reason);
  wire(record.words, record.loss, record.staleness);
}

template <class Wire>
void exchange(Wire& wire, Assignment& assignment) {
  wire(assignment.sequence, assignment.barrier, assignment.first, assignment.last, assignment.iteration);
  wire(assignment.lead, assignment.round_samples, assignment.decision, assignment.records);
  wire(assignment.stopping, assignment.stop_signal, assignment.non_finite, assignment.controller);
}

template <class Wire>
void exchange(Wire& wire, Provenance& from) {
  wire(from.worker, from.iteration, from.round, from.epoch, from.first, from.last);
}

template <class Wire>
void exchange(Wire& wire, PushHeader& push) {
  wire(push.chunk, push.from, push.round_samples, push.weight, push.rate, push.skipped, push.settings);
}

template <class Wire>
void exchange(Wire& wire, PushAnswer& answer) {
  wire(answer.chunk, answer.iteration, answer.staleness);
}

template <class Wire>
void exchange(Wire& wire, Failure& failure) {
  wire(failure.kind, failure.text, failure.ranks, failure.hosts);
}

template <class Wire>
void exchange(Wire& wire, PullHeader& pull) {
  wire(pull.chunk, pull.worker, pull.iteration, pull.rounds);
}

}  // namespace isochron
