#include "isochron/plan/modes.h"

#include <algorithm>
#include <cmath>

#include "isochron/core/job_settings.h"
#include "isochron/core/replica/rounds.h"

namespace isochron::plan {
namespace {

constexpr double kNear = 0.9;

Mode in_step(std::string options, const Step& step) {
  return {
      .options = std::move(options),
      .samples_per_second = step.samples_per_second(),
      .exchange_share = step.exchange_seconds / step.seconds()};
}

/// Nothing hides the exchange of a round, and the noise of its local steps averages out.
Mode in_rounds(const std::vector<Group>& groups, Exchange exchange, std::int64_t global_batch) {
  exchange.overlap = 0.0;
  const double share = RoundOptions().network_share;
  const Step one = predict_step(groups, exchange, global_batch);
  const double least = one.exchange_seconds * (1.0 - share) / (share * (one.compute_seconds + one.update_seconds));
  const double steps = std::clamp(std::ceil(least), 1.0, static_cast<double>(Rounds::kMostSteps));
  std::vector<Group> steadier = groups;
  for (Group& group : steadier) {
    group.machine.noise /= std::sqrt(steps);
  }
  const Step local = predict_step(steadier, exchange, global_batch);
  const double seconds = steps * (local.compute_seconds + local.update_seconds) + local.exchange_seconds;
  return {
      .options = "--sync local",
      .samples_per_second = steps * static_cast<double>(global_batch) / seconds,
      .exchange_share = local.exchange_seconds / seconds,
      .round_steps = std::llround(steps)};
}

}  // namespace

std::vector<Mode> predict_modes(const std::vector<Group>& groups, const Exchange& exchange, std::int64_t global_batch) {
  const auto compressed = [&](double sent) {
    Exchange fewer = exchange;
    fewer.sent = sent;
    return predict_step(groups, fewer, global_batch);
  };
  return {
      in_step("--sync bsp", compressed(1.0)),
      in_step("--compression bf16", compressed(0.5)),
      in_step("--compression int8", compressed(0.25)),
      in_rounds(groups, exchange, global_batch)};
}

const Mode& least_near_best(const std::vector<Mode>& modes) {
  const double best = std::ranges::max(modes, {}, &Mode::samples_per_second).samples_per_second;
  return *std::ranges::find_if(modes, [&](const Mode& mode) { return mode.samples_per_second >= kNear * best; });
}

}  // namespace isochron::plan
