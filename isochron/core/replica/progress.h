// How far every worker is when the workers of a job come together anew, after a failure or because one joins, and what
// follows from it. Pure: every worker computes the same from the same reports.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isochron/core/state.h"
#include "isochron/core/worker.h"

namespace isochron {

/// A worker as it describes itself.
struct WorkerState {
  Worker worker;

  void exchange(StateExchange& state);
};

/// The one that it gave itself, or one of its id.
std::string name_of(const Worker& worker);

struct ProgressReport {
  /// Of a newcomer, which knows nothing yet and has no id.
  static constexpr std::int64_t kNothing = -1;

  /// 2 n: it has finished n steps. 2 n + 1: the optimizer has taken one more step, and the reports of that are missing,
  /// so that nobody knows who else has taken it.
  std::int64_t progress = kNothing;
  Worker self;                    // its own bounds, whatever memory permits at present
  std::int64_t failed_batch = 0;  // memory did not hold this many samples of the step under way; 0: it did
  bool chunkable = false;         // it can compute a batch in chunks
  bool moments_known = false;     // it has measured the gradient of the last finished step
  WorkerId next_id = 0;           // of a worker who joins
  std::vector<WorkerId> evicted;  // those that it has evicted; not all need have seen the same
  double clock = 0.0;             // seconds since its job began, by its own clock

  void exchange(StateExchange& state);
  /// As text that travels. decode() throws std::invalid_argument on any other text.
  [[nodiscard]] std::string encode() const;
  static ProgressReport decode(const std::string& text);
};

struct MemoryFailure {
  WorkerId worker = 0;
  std::int64_t batch = 0;  // that memory did not hold
  bool chunkable = false;  // the worker can compute it in chunks
  bool operator==(const MemoryFailure&) const = default;
};

struct Settlement {
  std::int64_t progress = 0;  // of those who are furthest
  int leader = 0;             // the first of them, whose state counts
  std::vector<int> behind;    // ranks that need it
  /// Those who are furthest have taken a step whose reports are lost; they count it as finished.
  bool unfinished = false;
  bool moments_known = false;   // all of them have measured the gradient of the last finished step
  std::vector<Worker> workers;  // by rank; those who joined have their ids
  std::vector<Worker> joined;
  std::vector<MemoryFailure> out_of_memory;
  std::vector<WorkerId> evicted;  // by any of them
  std::vector<double> clocks;     // by rank, at about the same moment
  WorkerId next_id = 0;
};

/// By rank; at least one worker knows something.
Settlement settle(std::span<const ProgressReport> reports);

/// Those of `before` who are not among `now`.
std::vector<Worker> missing(std::span<const Worker> before, std::span<const Worker> now);

/// Whether a policy would see no difference.
bool same_workers(std::span<const Worker> left, std::span<const Worker> right);

}  // namespace isochron
