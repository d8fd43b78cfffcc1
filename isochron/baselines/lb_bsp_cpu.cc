#include "isochron/baselines/lb_bsp_cpu.h"

#include <algorithm>
#include <string>
#include <utility>

#include "isochron/baselines/kind_median.h"
#include "isochron/core/policy/per_worker.h"

namespace isochron {

LbBspCpu::LbBspCpu(PredictorOptions options) : options_(std::move(options)) {
  (void)make_predictor(options_);  // refuses bad options now, not at the first roster
}

Proposal LbBspCpu::start(const Roster& roster, std::span<const std::int64_t> current) {
  const Succession succession(ids_, roster);
  std::vector<Model> models(roster.workers.size());
  for (std::size_t k = 0; k < models.size(); ++k) {
    const std::size_t before = succession.predecessor(k);
    if (before == Succession::kNewcomer) {
      models[k].predictor = make_predictor(options_);
    } else {
      models[k] = std::move(models_[before]);
    }
  }
  models_ = std::move(models);
  ids_ = ids_of(roster);
  const bool first = current.empty();
  return {
      .batches = split(roster),
      .reason = first ? Reason::kStarted : Reason::kRosterChanged,
      .words = first ? "equal shares" : "split by predicted speeds, newcomers taken for the median of their kind"};
}

Proposal LbBspCpu::observe(
    const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) {
  bool learned = false;
  for (std::size_t k = 0; k < readings.size(); ++k) {
    learned |= models_[k].observe(readings[k]);
  }
  if (!learned) {
    return keep(current, Reason::kNoTelemetry, "no worker reported a usable time");
  }
  std::vector<double> batches = split(roster);
  if (std::ranges::equal(batches, current, {}, {}, [](std::int64_t batch) { return static_cast<double>(batch); })) {
    return keep(current, Reason::kKept, "predicted speeds ask for the same split");
  }
  return {
      .batches = std::move(batches),
      .reason = Reason::kRebalanced,
      .words = "split by the speeds predicted by " + options_.kind};
}

std::vector<double> LbBspCpu::split(const Roster& roster) const {
  std::vector<double> speeds;
  speeds.reserve(models_.size());
  for (const Model& model : models_) {
    speeds.push_back(model.speed);
  }
  return proportional_split(roster, fill_by_kind(roster, std::move(speeds)));
}

bool LbBspCpu::Model::observe(const Reading& reading) {
  if (reading.valid) {
    predictor->observe(static_cast<double>(reading.batch) / reading.seconds, usage);
  }
  usage = {.cpu = reading.usage.cpu, .memory = reading.usage.memory};
  if (reading.valid) {
    speed = predictor->predict(usage);
  }
  return reading.valid;
}

void LbBspCpu::Model::exchange(StateExchange& state) {
  state.part("predictor", *predictor);
  state.field("cpu", usage.cpu);
  state.field("memory", usage.memory);
  state.field("speed", speed);
}

void LbBspCpu::exchange(StateExchange& state) {
  for (std::size_t k = 0; k < models_.size(); ++k) {
    state.part(std::to_string(k), models_[k]);
  }
}

}  // namespace isochron
