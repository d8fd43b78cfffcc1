// What the workers report of a step.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "isochron/core/worker.h"

namespace isochron {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// What a worker takes of its machine. Reports, telemetry, records, the run log, the live page and Python hand it on as
/// a whole: a new figure is a field here, a line in kUsageFields, and its measurement (io/process_usage.cc).
struct MachineUsage {
  double cpu = 0.0;          // share of the time in which the process computed, 0..1
  double memory = 0.0;       // share of the machine's or the GPU's memory in use, 0..1
  double peak_memory = 0.0;  // the highest share that the process has held so far, 0..1; 0: unknown
  bool operator==(const MachineUsage&) const = default;
};

struct UsageField {
  std::string_view name;
  double MachineUsage::* member = nullptr;
  double most = 1.0;    // what a policy is told at most
  bool logged = false;  // a column of the run log, which is left out where it is 0 for all
};

inline constexpr std::array<UsageField, 3> kUsageFields{{
    {.name = "cpu", .member = &MachineUsage::cpu},
    {.name = "memory", .member = &MachineUsage::memory},
    {.name = "peak_memory", .member = &MachineUsage::peak_memory, .logged = true},
}};

inline constexpr MachineUsage kUnknownUsage{.cpu = kUnknown, .memory = kUnknown};

/// What the run log keeps of it; the rest is 0.
MachineUsage logged(MachineUsage usage);

struct WorkerTelemetry {
  WorkerId worker = 0;
  std::int64_t batch = 0;              // samples it computed
  double seconds = kUnknown;           // from the start of the step to the last local gradient; waiting excluded
  MachineUsage usage = kUnknownUsage;  // of its own machine
  std::int64_t sync_points = 1;        // times in the step at which it waited for all others, its end included
  bool cold = false;                   // the device's first step with this size, or one that compiled
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
/// `cold` says that the reading would be valid but for that. Figures of the usage are from 0 to what kUsageFields says,
/// or kUnknown; sync_points are 1 or more.
struct Reading {
  bool valid = false;
  bool cold = false;
  std::int64_t batch = 0;
  double seconds = kUnknown;
  MachineUsage usage = kUnknownUsage;
  std::int64_t sync_points = 1;
};

/// Aligns telemetry with the roster. Reports of strangers are ignored; of two reports of one worker the last counts.
std::vector<Reading> align(const StepTelemetry& telemetry, const Roster& roster);

}  // namespace isochron
