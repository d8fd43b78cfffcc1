#include "isochron/baselines/predictor.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "isochron/baselines/ar.h"
#include "isochron/baselines/narx.h"

namespace isochron {
namespace {

// Far outside what machines do; the limits keep squares and ratios of speeds finite.
constexpr double kSlowest = 1e-12;
constexpr double kFastest = 1e15;

/// The coming step will be as fast as the last one.
class Memoryless final : public Predictor {
 public:
  [[nodiscard]] double predict(const Usage& /*now*/) const override { return last_; }
  void exchange(StateExchange& state) override { state.field("last", last_); }

 private:
  void learn(double speed, const Usage& /*usage*/) override { last_ = speed; }

  double last_ = 0.0;
};

/// The exponentially weighted moving average of past speeds: m += alpha (v - m), starting at the first speed.
class Ewma final : public Predictor {
 public:
  /// `alpha`, the weight of the newest speed, is above 0 and at most 1; anything else throws std::invalid_argument.
  explicit Ewma(double alpha) : alpha_(alpha) {
    if (!(alpha > 0.0 && alpha <= 1.0)) {
      throw std::invalid_argument("ewma is " + std::to_string(alpha) + "; permitted: above 0, at most 1");
    }
  }

  [[nodiscard]] double predict(const Usage& /*now*/) const override { return mean_; }
  void exchange(StateExchange& state) override { state.field("mean", mean_); }

 private:
  void learn(double speed, const Usage& /*usage*/) override {
    mean_ = mean_ > 0.0 ? mean_ + alpha_ * (speed - mean_) : speed;
  }

  double alpha_;
  double mean_ = 0.0;
};

}  // namespace

void Predictor::observe(double speed, const Usage& usage) {
  if (std::isfinite(speed) && speed > 0.0) {
    learn(std::clamp(speed, kSlowest, kFastest), usage);
  }
}

const std::vector<std::string>& predictor_kinds() {
  static const std::vector<std::string> kinds{"memoryless", "ewma", "ar", "narx"};
  return kinds;
}

std::unique_ptr<Predictor> make_predictor(const PredictorOptions& options) {
  if (options.kind == "memoryless") {
    return std::make_unique<Memoryless>();
  }
  if (options.kind == "ewma") {
    return std::make_unique<Ewma>(options.ewma);
  }
  if (options.kind == "ar") {
    return std::make_unique<AutoRegression>(options.order);
  }
  if (options.kind == "narx") {
    return std::make_unique<Narx>();
  }
  throw std::invalid_argument("predictor is " + options.kind + "; permitted: memoryless, ewma, ar, narx");
}

}  // namespace isochron
