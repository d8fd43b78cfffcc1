// Workers and times for the tests of policies.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "isochron/core/policy/controller.h"

namespace isochron {

/// Workers 1, 2, ... without bounds, the given weights as their own.
inline Roster roster_of(const std::vector<double>& weights, std::int64_t global_batch) {
  Roster roster{.workers = {}, .global_batch = global_batch};
  for (const double weight : weights) {
    Worker worker;
    worker.id = roster.workers.size() + 1;
    worker.weight = weight;
    roster.workers.push_back(worker);
  }
  return roster;
}

/// Seconds of the worker at a place for a batch.
using Times = std::function<double(std::size_t place, double batch)>;

/// t = fixed + b / speed.
inline Times affine_times(const std::vector<double>& speeds, double fixed = 0.0) {
  return [=](std::size_t place, double batch) { return fixed + batch / speeds[place]; };
}

/// What the workers report of the step that is decided.
inline StepTelemetry report_of(const Controller& controller, const Times& times) {
  StepTelemetry telemetry{.step = controller.decision().step, .workers = {}};
  for (std::size_t k = 0; k < controller.roster().workers.size(); ++k) {
    const std::int64_t batch = controller.decision().batch_sizes[k];
    WorkerTelemetry report;
    report.worker = controller.roster().workers[k].id;
    report.batch = batch;
    report.seconds = times(k, static_cast<double>(batch));
    telemetry.workers.push_back(report);
  }
  return telemetry;
}

/// Runs `steps` steps; how many of them changed the split.
inline int run(Controller& controller, const Times& times, int steps) {
  int changes = 0;
  for (int step = 0; step < steps; ++step) {
    changes += controller.observe(report_of(controller, times)).changed ? 1 : 0;
  }
  return changes;
}

inline Controller controller_for(const std::string& policy, Roster roster) {
  return {std::move(roster), {.policy = policy, .rate = {}}};
}

/// The text of the exception that `call` throws; empty if it throws none.
template <class Exception, class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace isochron
