// Predictors of how fast a worker will be in the coming step, in samples per second.
//
// LB-BSP (Chen et al., SoCC 2020) compares several; here are memoryless (the last speed), ewma, ar (in the place of
// ARIMA) and narx. One instance per worker. Arithmetic is limited to what IEEE 754 rounds exactly (+ - * / sqrt), so
// that replicas on different machines predict the same bits. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "isochron/core/state.h"
#include "isochron/core/telemetry.h"

namespace isochron {

/// What drives a worker's speed, as known when a step begins; shares of 0..1 or kUnknown.
struct Usage {
  double cpu = kUnknown;
  double memory = kUnknown;
};

class Predictor {
 public:
  Predictor() = default;
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;
  virtual ~Predictor() = default;

  /// Learns from a finished step: its speed, and the usage that was known when it began. A speed that is not positive
  /// and finite teaches nothing.
  void observe(double speed, const Usage& usage);

  /// The speed of the coming step: positive and finite, or 0 if nothing was observed yet.
  [[nodiscard]] virtual double predict(const Usage& now) const = 0;

  /// Lists what was learned (see StateExchange).
  virtual void exchange(StateExchange& state) = 0;

 private:
  virtual void learn(double speed, const Usage& usage) = 0;
};

struct PredictorOptions {
  std::string kind = "narx";  // one of predictor_kinds()
  double ewma = 0.2;          // ewma: weight of the newest speed, above 0, at most 1
  std::int64_t order = 3;     // ar: past speeds it looks at, 1 or more
};

/// memoryless, ewma, ar, narx.
const std::vector<std::string>& predictor_kinds();

/// Throws std::invalid_argument on an unknown kind or an option out of range.
[[nodiscard]] std::unique_ptr<Predictor> make_predictor(const PredictorOptions& options);

}  // namespace isochron
