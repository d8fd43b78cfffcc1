// What a worker and the coordinator say to each other, once every iteration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/core/state.h"
#include "isochron/core/telemetry.h"
#include "isochron/core/worker.h"

namespace isochron {

// "I am free", with what there is to say of the iteration before. Times are seconds on the worker's clock since the job
// began.
struct FreeWords {
  bool finished = false;         // an iteration, whose update is applied; the rest of this block is about it
  std::int64_t batch = 0;        // samples
  double start = 0.0;            // it was told to begin
  double seconds = 0.0;          // from then to the moment at which the servers had its update
  double compute_seconds = 0.0;  // of that, up to the last local gradient, parameters at hand
  bool warm = true;              // false: the device's first with a batch of this size, whose times say nothing
  double waited = 0.0;           // before it, for being told to begin
  double cpu = kUnknown;
  double memory = kUnknown;
  double loss = kUnknown;
  double rate_factor = 1.0;  // of the learning rate
  std::int64_t staleness = 0;

  bool trains = true;     // a dedicated server comes to meetings only
  std::int64_t stop = 0;  // 0: go on; 1: stop; 1 + n: stop because of signal n
  std::string numbers;    // the gradient was not finite, in words, and the job is to end; empty: not so

  void exchange(StateExchange& state);
};

// What to do next.
struct NextWords {
  bool meet = false;  // all come together: everything that may be used is
  // Otherwise: the samples at positions first to last of the epoch.
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t iteration = 0;      // of this worker
  std::int64_t lead = 0;           // iterations ahead of the slowest
  std::int64_t round_samples = 0;  // with bound 0: of the round
  std::vector<std::int64_t> batch_sizes;
  double rate_factor = 1.0;  // of the rule for the global batch
  std::string reason;        // for the split, in words
  // What became known since this worker last asked: records of iterations as lines of a run log.
  std::string news;
  bool stopping = false;
  std::int64_t stop_signal = 0;
  std::string numbers;  // why the job is to end at once; empty: it is not

  void exchange(StateExchange& state);
};

}  // namespace isochron
