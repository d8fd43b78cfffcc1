// What the workers report of a step.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "isochron/core/worker.h"

namespace isochron {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct WorkerTelemetry {
  WorkerId worker = 0;
  std::int64_t batch = 0;        // samples it computed
  double seconds = kUnknown;     // from the start of the step to the last local gradient; waiting excluded
  double cpu = kUnknown;         // share of its CPU time that was available, 0..1
  double memory = kUnknown;      // share of its memory in use, 0..1
  std::int64_t sync_points = 1;  // times in the step at which it waited for all others, its end included
  bool cold = false;             // the device's first step with this size, or one that compiled
};

struct StepTelemetry {
  std::int64_t step = 0;
  std::vector<WorkerTelemetry> workers;  // any order; a worker may be missing
};

/// A step outside these times (seconds) was not measured but made up; policies are spared the overflows.
inline constexpr double kShortestStep = 1e-9;
inline constexpr double kLongestStep = 1e9;

/// One worker's report as a policy gets it: in the roster's order, checked. `valid` says that the batch is positive and
/// the time possible and not that of a cold step; otherwise nothing was learned of the worker's speed in this step.
/// `cold` says that the reading would be valid but for that. cpu and memory are in 0..1 or kUnknown; sync_points are 1
/// or more.
struct Reading {
  bool valid = false;
  bool cold = false;
  std::int64_t batch = 0;
  double seconds = kUnknown;
  double cpu = kUnknown;
  double memory = kUnknown;
  std::int64_t sync_points = 1;
};

/// Aligns telemetry with the roster. Reports of strangers are ignored; of two reports of one worker the last counts.
std::vector<Reading> align(const StepTelemetry& telemetry, const Roster& roster);

}  // namespace isochron
