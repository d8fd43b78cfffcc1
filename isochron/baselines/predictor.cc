#include "isochron/baselines/predictor.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "isochron/baselines/ar.h"
#include "isochron/baselines/ewma.h"
#include "isochron/baselines/memoryless.h"
#include "isochron/baselines/narx.h"

namespace isochron {
namespace {

// Far outside what machines do; the limits keep squares and ratios of speeds finite.
constexpr double kSlowest = 1e-12;
constexpr double kFastest = 1e15;

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
