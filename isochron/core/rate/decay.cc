#include "isochron/core/rate/decay.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "isochron/core/error.h"

namespace isochron {
namespace {

double step_decay(const DecayOptions& options, std::int64_t step) {
  const std::int64_t every =
      options.step_every > 0 ? options.step_every : std::max<std::int64_t>(options.total_steps / 3, 1);
  const std::int64_t falls = step / every;
  return std::pow(options.step_factor, static_cast<double>(falls));
}

double cosine_decay(const DecayOptions& options, std::int64_t step) {
  const std::int64_t length = options.total_steps - options.warmup_steps;
  const std::int64_t done = step - options.warmup_steps;
  if (done <= 0 || length <= 0) {
    return 1.0;
  }
  const double progress = static_cast<double>(done) / static_cast<double>(length);
  return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace

void DecayOptions::validate() const {
  require_at_least("total steps", total_steps, 1);
  require_at_least("warmup", warmup_steps, 0);
  require(step_factor > 0.0 && step_factor <= 1.0, "step-factor", step_factor, "above 0, at most 1");
  require(step_every >= 0, "step-every", step_every, "1 or more, or 0 for a third of the run");
}

double decay_factor(const DecayOptions& options, std::int64_t step) {
  step = std::min(step, options.total_steps);
  const double warmup =
      step < options.warmup_steps ? static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps) : 1.0;
  switch (options.decay) {
    case Decay::kStep:
      return warmup * step_decay(options, step);
    case Decay::kCosine:
      return warmup * cosine_decay(options, step);
    case Decay::kConstant:
      break;
  }
  return warmup;
}

}  // namespace isochron
