#include "isochron/core/predict/level_bank.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace isochron {
namespace {

constexpr LevelBank::PerFilter kDriftRatio{1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0};
constexpr double kLeastNoise = 1e-6;
constexpr double kPooled = 0.1;
constexpr double kWarmth = 3.0;          // readings that the first guess of the noise counts for
constexpr double kLongestMemory = 50.0;  // readings, of the noise
constexpr double kInnovationClip = 3.0;  // standard deviations at which an innovation is cut off

}  // namespace

void LevelBank::reset(double reading, double noise) {
  level_.fill(reading);
  spread_.fill(1.0);
  first_noise_ = noise;
  noise_.fill(noise);
  log_likelihood_.fill(0.0);
  weight_.fill(1.0 / kFilters);
  readings_ = 0.0;
  first_guess_left_ = 1.0;
}

void LevelBank::predict(double doubt) {
  for (std::size_t i = 0; i < kFilters; ++i) {
    spread_[i] += kDriftRatio[i] + doubt / noise_[i];
  }
}

void LevelBank::update(const Judged& judged) {
  const auto [reading, verdict, jumped_to, learn_noise, forgetting] = judged;
  const double gain = 1.0 / std::min(readings_ + kWarmth + 1.0, kLongestMemory);
  PerFilter likelihood{};
  double best = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < kFilters; ++i) {
    const double variance = noise_[i] * (1.0 + spread_[i]);
    const double limit = kInnovationClip * std::sqrt(variance);
    const double error = std::clamp(reading - level_[i], -limit, limit);
    const double surprise = error * error / variance;
    likelihood[i] = -0.5 * (std::log(variance) + surprise);
    best = std::max(best, likelihood[i]);
    if (learn_noise) {
      noise_[i] = std::max(kLeastNoise, noise_[i] * (1.0 + gain * (surprise - 1.0)));
    }
    if (verdict == Verdict::kChanged) {
      level_[i] = jumped_to;
      spread_[i] = 0.5;
    } else if (verdict == Verdict::kOrdinary) {
      const double kalman = spread_[i] / (1.0 + spread_[i]);
      level_[i] += kalman * error;
      spread_[i] *= 1.0 - kalman;
    }
  }
  if (verdict == Verdict::kOrdinary) {
    for (std::size_t i = 0; i < kFilters; ++i) {
      log_likelihood_[i] = forgetting * log_likelihood_[i] + likelihood[i] - best;
    }
  }
  if (learn_noise) {
    readings_ += 1.0;
    first_guess_left_ *= 1.0 - gain;
  }
}

void LevelBank::weigh(std::span<const double, kFilters> pooled) {
  PerFilter score{};
  for (std::size_t i = 0; i < kFilters; ++i) {
    score[i] = (1.0 - kPooled) * log_likelihood_[i] + kPooled * pooled[i];
  }
  const double best = *std::ranges::max_element(score);
  double sum = 0.0;
  for (std::size_t i = 0; i < kFilters; ++i) {
    // Below e^-30 a filter does not count, and the exponential need not be taken.
    weight_[i] = score[i] - best < -30.0 ? 0.0 : std::exp(score[i] - best);
    sum += weight_[i];
  }
  for (double& weight : weight_) {
    weight /= sum;
  }
}

LevelBelief LevelBank::belief() const {
  LevelBelief belief;
  for (std::size_t i = 0; i < kFilters; ++i) {
    belief.level += weight_[i] * level_[i];
    belief.noise += weight_[i] * noise_[i];
  }
  for (std::size_t i = 0; i < kFilters; ++i) {
    const double apart = level_[i] - belief.level;
    belief.variance += weight_[i] * (spread_[i] * noise_[i] + apart * apart);
  }
  return belief;
}

double LevelBank::unbiased_noise() const {
  double noise = 0.0;
  for (std::size_t i = 0; i < kFilters; ++i) {
    noise += weight_[i] * noise_[i];
  }
  return std::max(noise - first_guess_left_ * first_noise_, 1e-8) / std::max(1.0 - first_guess_left_, 0.01);
}

void LevelBank::shift(double change) {
  for (double& level : level_) {
    level += change;
  }
}

void LevelBank::exchange(StateExchange& state) {
  const auto exchange_array = [&state](std::string_view name, PerFilter& values) {
    std::vector<double> list(values.begin(), values.end());
    state.fixed_list(name, list);
    std::ranges::copy(list, values.begin());
  };
  exchange_array("level", level_);
  exchange_array("spread", spread_);
  exchange_array("noise", noise_);
  exchange_array("log_likelihood", log_likelihood_);
  exchange_array("weight", weight_);
  state.field("first_noise", first_noise_);
  state.field("readings", readings_);
  state.field("first_guess_left", first_guess_left_);
}

}  // namespace isochron
