#include "isochron/core/predict/speedup.h"

#include <cmath>
#include <cstddef>

#include "isochron/core/predict/expected_max.h"

namespace isochron {

std::vector<std::int64_t> split(std::span<const Pace> paces, std::int64_t global_batch, Shares shares) {
  std::vector<Slot> slots;
  slots.reserve(paces.size());
  for (const Pace& pace : paces) {
    slots.push_back(pace.slot);
    if (shares == Shares::kEqual) {
      slots.back().curve = Curve::linear(1.0);
      slots.back().offset_seconds = 0.0;
    }
  }
  return allocate(slots, global_batch).batch_sizes;
}

double expected_compute(std::span<const Pace> paces, std::span<const std::int64_t> batch_sizes) {
  std::vector<double> log_means;
  std::vector<double> sigmas;
  for (std::size_t k = 0; k < paces.size(); ++k) {
    const double seconds = paces[k].slot.curve.seconds(static_cast<double>(batch_sizes[k]));
    if (seconds > 0.0) {
      log_means.push_back(std::log(seconds));
      sigmas.push_back(paces[k].noise);
    }
  }
  return log_means.empty() ? 0.0 : expected_max(log_means, sigmas);
}

double speedup(std::span<const Pace> paces, std::int64_t global_batch, double rest_seconds) {
  const double equal = expected_compute(paces, split(paces, global_batch, Shares::kEqual));
  const double best = expected_compute(paces, split(paces, global_batch, Shares::kBest));
  return (equal + rest_seconds) / (best + rest_seconds);
}

}  // namespace isochron
