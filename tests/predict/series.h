// Synthetic speeds, and how well a predictor follows them.
#pragma once

#include <vector>

#include "isochron/baselines/predictor.h"

namespace isochron {

struct SeriesStep {
  double speed = 0.0;
  Usage usage;
};

/// Mean square of (prediction - speed) / speed over the series, the first `skipped` steps only learned from.
inline double error_of(Predictor& predictor, const std::vector<SeriesStep>& series, std::size_t skipped) {
  double sum = 0.0;
  for (std::size_t k = 0; k < series.size(); ++k) {
    const auto& [speed, usage] = series[k];
    const double error = predictor.predict(usage) / speed - 1.0;
    sum += k < skipped ? 0.0 : error * error;
    predictor.observe(speed, usage);
  }
  return sum / static_cast<double>(series.size() - skipped);
}

inline double error_of(const PredictorOptions& options, const std::vector<SeriesStep>& series, std::size_t skipped) {
  return error_of(*make_predictor(options), series, skipped);
}

}  // namespace isochron
