#include "isochron/core/replica/rounds.h"

#include <algorithm>
#include <cmath>

namespace isochron {
namespace {

constexpr double kNew = 0.3;          // weight of a new measurement
constexpr double kTolerance = 0.125;  // a length that is off by less stays, so that it does not change all the time
constexpr std::int64_t kMostGrowth = 8;

double smoothed(double known, double measured) {
  return known > 0.0 ? (1.0 - kNew) * known + kNew * measured : measured;
}

}  // namespace

std::int64_t Rounds::steps_of(std::int64_t samples, std::int64_t global_batch) {
  return (samples + global_batch - 1) / global_batch;
}

Worker Rounds::in_units(Worker worker) {
  worker.min_batch *= kUnitsPerSample;
  worker.max_batch = worker.max_batch > kNoLimit / kUnitsPerSample ? kNoLimit : worker.max_batch * kUnitsPerSample;
  return worker;
}

std::vector<Interval> Rounds::parts(const Interval& share, std::int64_t steps) {
  const std::int64_t count = std::min(steps, share.size());
  std::vector<Interval> parts;
  std::int64_t first = share.first;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t size = share.size() / count + (i < share.size() % count ? 1 : 0);
    parts.push_back({.first = first, .last = first + size});
    first += size;
  }
  return parts;
}

void Rounds::bring_to_step(StepTelemetry& telemetry, std::int64_t steps) {
  for (WorkerTelemetry& worker : telemetry.workers) {
    worker.batch = (worker.batch * kUnitsPerSample + steps / 2) / steps;
    worker.seconds /= static_cast<double>(steps);
  }
}

void Rounds::observe(std::span<const StepReport> reports, std::int64_t steps) {
  double exchange = 0.0;
  double seconds = 0.0;
  for (const StepReport& report : reports) {
    exchange = std::max(exchange, report.exchange);
    seconds = std::max(seconds, report.warm ? report.seconds : 0.0);
  }
  if (std::isfinite(exchange) && exchange > 0.0) {
    exchange_seconds_ = smoothed(exchange_seconds_, exchange);
  }
  if (std::isfinite(seconds) && seconds > 0.0) {
    step_seconds_ = smoothed(step_seconds_, seconds / static_cast<double>(steps));
  }
  if (exchange_seconds_ == 0.0 || step_seconds_ == 0.0) {
    return;
  }
  const double least = exchange_seconds_ * (1.0 - network_share_) / (network_share_ * step_seconds_);
  const auto most = static_cast<double>(std::min(kMostGrowth * chosen_, kMostSteps));
  const double wished = std::clamp(std::ceil(least), 1.0, most);
  const auto present = static_cast<double>(chosen_);
  if (std::abs(wished - present) > kTolerance * present) {
    chosen_ = std::llround(wished);
  }
}

void Rounds::exchange(StateExchange& state) {
  state.field("steps", chosen_);
  state.field("exchange_seconds", exchange_seconds_);
  state.field("step_seconds", step_seconds_);
  if (state.restoring()) {
    chosen_ = std::clamp<std::int64_t>(chosen_, 1, kMostSteps);
  }
}

}  // namespace isochron
