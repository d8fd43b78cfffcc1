#include "isochron/core/telemetry.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace isochron {
namespace {

MachineUsage checked_usage(MachineUsage usage) {
  for (const UsageField& field : kUsageFields) {
    double& value = usage.*field.member;
    value = std::isfinite(value) ? std::clamp(value, 0.0, field.most) : kUnknown;
  }
  return usage;
}

Reading checked(const WorkerTelemetry& report) {
  const bool possible = report.batch > 0 && report.seconds >= kShortestStep && report.seconds <= kLongestStep;
  Reading reading{
      .valid = possible && !report.cold,
      .cold = possible && report.cold,
      .batch = report.batch,
      .seconds = report.seconds,
      .usage = checked_usage(report.usage),
      .sync_points = std::max(report.sync_points, std::int64_t{1})};
  if (!possible) {
    reading.batch = 0;
    reading.seconds = kUnknown;
  }
  return reading;
}

}  // namespace

MachineUsage logged(MachineUsage usage) {
  for (const UsageField& field : kUsageFields) {
    usage.*field.member = field.logged ? usage.*field.member : 0.0;
  }
  return usage;
}

std::vector<Reading> align(const StepTelemetry& telemetry, const Roster& roster) {
  const std::size_t count = roster.workers.size();
  std::vector<Reading> readings(count);
  // The common case: one report per worker, in the roster's order.
  const bool in_order =
      telemetry.workers.size() == count &&
      std::equal(
          telemetry.workers.begin(),
          telemetry.workers.end(),
          roster.workers.begin(),
          [](const WorkerTelemetry& report, const Worker& worker) { return report.worker == worker.id; });
  if (in_order) {
    std::ranges::transform(telemetry.workers, readings.begin(), checked);
    return readings;
  }
  std::unordered_map<WorkerId, std::size_t> place;
  for (std::size_t i = 0; i < count; ++i) {
    place.emplace(roster.workers[i].id, i);
  }
  for (const WorkerTelemetry& report : telemetry.workers) {
    if (const auto found = place.find(report.worker); found != place.end()) {
      readings[found->second] = checked(report);
    }
  }
  return readings;
}

}  // namespace isochron
