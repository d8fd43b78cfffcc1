// Where the workers of a job stand when they come together anew, after a failure or because one joins, and what follows
// from it. Pure; every worker computes the same from the same standings.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isochron/core/state.h"
#include "isochron/core/worker.h"

namespace isochron {

// A worker as it describes itself.
struct WorkerState {
  Worker worker;

  void exchange(StateExchange& state);
};

struct Standing {
  // Of a newcomer: knows nothing yet, and has no id.
  static constexpr std::int64_t kNothing = -1;

  // 2 n: it has finished n steps; 2 n + 1: and the optimizer has taken one more, of which nobody knows who else did.
  std::int64_t progress = kNothing;
  Worker self;                    // its own bounds, whatever memory permits at present
  std::int64_t failed_batch = 0;  // it ran out of memory with so many samples in the step under way; 0: it did not
  bool in_pieces = false;         // it may compute a batch in pieces
  WorkerId next_id = 0;           // of a worker who joins
  std::vector<WorkerId> evicted;  // those it has put out; not all need have seen the same
  double clock = 0.0;             // seconds since its job began, by its own clock

  void exchange(StateExchange& state);
};

struct OutOfMemory {
  WorkerId worker = 0;
  std::int64_t batch = 0;  // that it could not compute
  bool in_pieces = false;  // it may compute it in pieces
};

struct Settlement {
  std::int64_t progress = 0;  // of those who are furthest
  int leader = 0;             // the first of them, whose state counts
  std::vector<int> behind;    // ranks that need it
  // Those who are furthest have taken a step whose reports are lost; they count it as finished.
  bool unfinished = false;
  std::vector<Worker> workers;  // by rank; those who joined have their ids
  std::vector<Worker> joined;
  std::vector<OutOfMemory> out_of_memory;
  std::vector<WorkerId> evicted;  // by any of them
  std::vector<double> clocks;     // by rank, at about the same moment
  WorkerId next_id = 0;
};

// By rank; at least one worker knows something.
Settlement settle(std::span<const Standing> standings);

// Those of `before` who are not among `now`.
std::vector<Worker> missing(std::span<const Worker> before, std::span<const Worker> now);

// Whether a policy would see a difference.
bool same_workers(std::span<const Worker> left, std::span<const Worker> right);

}  // namespace isochron
