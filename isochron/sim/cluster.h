// A cluster as the simulator and the emulator read it: workers, their speeds and noise, and what changes when.
//
// A worker's true time for b samples in step n is
//   t = sample_seconds / (cores x speed factor) x (overhead + max(b, plateau)) x noise
// so `overhead` and `plateau` are in samples: overhead makes the curve affine, plateau makes it saturating.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isochron/core/curve/curve.h"
#include "isochron/core/trace/event.h"

namespace isochron::sim {

/// The most that standard deviations of the logarithm of time may be: no machine's times differ by more.
inline constexpr double kMostNoise = 3.0;

/// Random variation of one worker's step times, on the logarithm of time.
struct Noise {
  double sigma = 0.0;              // standard deviation per step, 0..kMostNoise
  double autocorrelation = 0.0;    // of consecutive steps (AR(1)), 0..1; the standard deviation stays sigma
  double spike_probability = 0.0;  // a step takes spike_low..spike_high times as long (Pareto tail), 0..1
  double spike_low = 3.0;          // > 1
  double spike_high = 10.0;        // >= spike_low
  double drift = 0.0;              // standard deviation per step of a random walk of log speed, 0..kMostNoise
};

/// A co-tenant that comes and goes: `slowdown` times slower for `on` steps, then normal for `off` steps.
struct Interference {
  double slowdown = 1.0;   // >= 1; 1: none
  std::int64_t on = 0;     // steps
  std::int64_t off = 0;    // steps
  std::int64_t phase = 0;  // steps by which the cycle is ahead
};

/// The worker's link; 0 means unlimited or immediate.
struct Link {
  double bytes_per_second = 0.0;
  double delay_seconds = 0.0;
};

struct WorkerSpec {
  std::string name;
  std::string kind = "cpu";
  double cores = 1.0;         // emulation: CPU quota; simulation: relative speed, > 0
  double overhead = 0.0;      // fixed cost of a step, in samples, >= 0
  double plateau = 0.0;       // samples below which time stays flat, >= 0
  double cold_seconds = 0.0;  // that the first step with a batch size takes longer, as on a GPU, >= 0
  Noise noise;
  Interference interference;
  Link link;
  double gpu_share = 0.0;  // per cent of a GPU, for emulation; 0: none
  std::int64_t min_batch = 1;
  std::int64_t max_batch = kNoLimit;
  std::int64_t granularity = 1;
  bool absent = false;  // not there at the start; a `join` brings it in
};

/// Something that happens at a step boundary: a new speed, or one of kill, stop, continue and join.
struct Change {
  std::optional<std::int64_t> at_step = std::nullopt;  // exactly one of the two is set
  std::optional<double> at_seconds = std::nullopt;
  std::string worker;                          // by name; "*": all
  std::optional<double> cores = std::nullopt;  // the new speed
  Event event = Event::kSpeed;
};

struct ClusterSpec {
  std::string name;
  std::string description;
  std::vector<WorkerSpec> workers;
  std::vector<Change> changes;
  double common_noise = 0.0;     // standard deviation of a slowdown that all workers share in a step, >= 0
  double sample_seconds = 0.01;  // one sample on one core, > 0

  /// Throws std::invalid_argument naming the worker, the field, the value and what is permitted.
  void validate() const;
};

}  // namespace isochron::sim
