#include "isochron/core/rate/rate.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "isochron/core/error.h"

namespace isochron {
namespace {

void validate(const RateOptions& options, std::int64_t global_batch) {
  require(
      options.reference_batch >= 0, "reference batch", options.reference_batch, "1 or more, or 0 for the global batch");
  require(
      options.warmup_steps >= 0.0 && std::isfinite(options.warmup_steps),
      "warm-up steps",
      options.warmup_steps,
      "a finite number, 0 or more");
  require_at_least("global batch", global_batch, 1);
}

// AdaScale's gain r = (sigma^2 + mu^2) / (sigma^2 / k + mu^2), sigma^2 being the variance at the reference batch: k
// where noise dominates, since averaging k times as many samples pays in full, and 1 where there is none.
double adascale_gain(double variance, double mean_square, double ratio) {
  // The estimate of mu^2 is unbiased, so near a minimum it falls below 0 now and then.
  const double signal = std::max(mean_square, 0.0);
  const double gain = (variance + signal) / (variance / ratio + signal);
  return std::isfinite(gain) ? gain : 1.0;
}

}  // namespace

RateRule parse_rate_rule(std::string_view name) {
  return parse_name(kRateRuleNames, "learning-rate rule", name);
}

std::string_view to_string(RateRule rule) {
  return name_of(kRateRuleNames, rule);
}

RateSchedule::RateSchedule(RateOptions options, std::int64_t global_batch) : options_(options) {
  validate(options, global_batch);
  if (options.reference_batch > 0) {
    ratio_ = static_cast<double>(global_batch) / static_cast<double>(options.reference_batch);
  }
}

double RateSchedule::factor(std::int64_t step) const {
  double full = 1.0;
  switch (options_.rule) {
    case RateRule::kNone:
      break;
    case RateRule::kLinear:
      full = ratio_;
      break;
    case RateRule::kSqrt:
    case RateRule::kLegw:
      full = std::sqrt(ratio_);
      break;
    case RateRule::kAdaScale:
      full = observations_ > 0 ? adascale_gain(variance_, mean_square_, ratio_) : 1.0;
      break;
  }
  const double warmup_steps = options_.rule == RateRule::kLegw ? options_.warmup_steps : options_.warmup_steps / ratio_;
  const double done = static_cast<double>(step) + 1.0;
  return done < warmup_steps ? full * done / warmup_steps : full;
}

// With V the variance of one sample's gradient (summed over its coordinates) and mu the true gradient, g_k has variance
// V / b_k and g has V / B, so that
//   E sum_k (b_k / B) |g_k|^2 = |mu|^2 + sum_k (b_k / B) (V / b_k) = |mu|^2 + K V / B,
//   E |g|^2                   = |mu|^2 + V / B.
// However unequal the batches are, the difference of the two is (K - 1) V / B: dividing by K - 1 gives V / B without
// bias, |g|^2 less that gives |mu|^2, and k V / B is the variance at the reference batch.
void RateSchedule::observe(const GradientMoments& moments) {
  const auto usable = [](double square) { return std::isfinite(square) && square > 0.0; };
  if (moments.workers < 2 || !usable(moments.mean_local_square) || !usable(moments.global_square)) {
    return;
  }
  // By convexity the difference is never negative but for rounding.
  const double noise =
      std::max(moments.mean_local_square - moments.global_square, 0.0) / static_cast<double>(moments.workers - 1);
  ++observations_;
  // The paper's smoothing: a plain mean at first, then a moving average over 1000 / k steps.
  const double weight = std::max(1.0 / static_cast<double>(observations_), std::min(ratio_ / 1000.0, 1.0));
  variance_ += weight * (ratio_ * noise - variance_);
  mean_square_ += weight * (moments.global_square - noise - mean_square_);
}

void RateSchedule::exchange(StateExchange& state) {
  state.field("variance", variance_);
  state.field("mean_square", mean_square_);
  state.field("observations", observations_);
}

double push_factor(
    const PushRate& rule, std::int64_t batch, std::int64_t global_batch, std::int64_t workers, std::int64_t staleness) {
  if (rule.by_batch && rule.by_batch_sqrt) {
    throw std::invalid_argument("push rate is by batch and by its square root; permitted: at most one of the two");
  }
  ISO_CHECK(batch >= 0 && global_batch >= 1 && workers >= 1 && staleness >= 0, "a push that cannot be");
  const double share = static_cast<double>(batch) * static_cast<double>(workers) / static_cast<double>(global_batch);
  double factor = 1.0;
  if (rule.by_batch) {
    factor *= share;
  }
  if (rule.by_batch_sqrt) {
    factor *= std::sqrt(share);
  }
  if (rule.by_staleness) {
    factor /= 1.0 + static_cast<double>(staleness);
  }
  return factor;
}

double asynchronous_momentum(double momentum, std::int64_t workers) {
  ISO_CHECK(momentum >= 0.0 && workers >= 1, "a momentum below 0 or no workers");
  return std::max(0.0, 1.0 - static_cast<double>(workers) * (1.0 - momentum));
}

}  // namespace isochron
