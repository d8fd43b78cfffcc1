#include "isochron/core/curve/cost_parts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace isochron {
namespace {

constexpr double kReadingRetention = 0.99;  // of old readings, at every new one
// The variance of a relative error, before the readings say it, and the number of readings that this counts for.
constexpr double kFirstVariance = 1e-2;
constexpr double kFirstReadings = 6.0;
constexpr double kLeastVariance = 1e-6;
constexpr double kMostRatio = 8.0;
constexpr double kLeastRatio = 1.0 / 64.0;  // of those that are tried, besides 0
constexpr int kNarrowings = 24;

/// A worker whose readings are far from any line, such as one whose speed has changed, says little.
struct Heard {
  const CostParts* parts;
  double noise;  // the variance of its relative errors
};

/// What is to be as small as possible.
double squares_of(std::span<const Heard> workers, double ratio) {
  double sum = ratio * ratio;  // before any reading, a sample by itself may cost as much as its mean work
  for (const Heard& one : workers) {
    sum += one.parts->fit(ratio, one.noise).squares / one.noise;
  }
  return sum;
}

/// As small as any ratio makes the squares.
double noise_of(const CostParts& parts) {
  double least = parts.fit(0.0, kFirstVariance).squares;
  double ratio = kLeastRatio;
  while (ratio <= kMostRatio) {
    least = std::min(least, parts.fit(ratio, kFirstVariance).squares);
    ratio *= 2.0;
  }
  const double known = std::max(parts.readings() - 3.0, 0.0);
  return std::max((std::max(least, 0.0) + kFirstReadings * kFirstVariance) / (known + kFirstReadings), kLeastVariance);
}

/// By golden section, around the best of a few.
double best_ratio(std::span<const Heard> workers) {
  const auto squares = [&](double ratio) { return squares_of(workers, ratio); };
  double best = 0.0;
  double least = squares(0.0);
  double ratio = kLeastRatio;
  while (ratio <= kMostRatio) {
    if (const double left = squares(ratio); left < least) {
      best = ratio;
      least = left;
    }
    ratio *= 2.0;
  }
  double low = best > kLeastRatio ? 0.5 * best : 0.0;
  double high = std::clamp(2.0 * best, kLeastRatio, kMostRatio);
  constexpr double kGolden = 0.6180339887498949;
  double left = high - kGolden * (high - low);
  double right = low + kGolden * (high - low);
  double at_left = squares(left);
  double at_right = squares(right);
  for (int i = 0; i < kNarrowings; ++i) {
    if (at_left <= at_right) {
      high = right;
      right = left;
      at_right = at_left;
      left = high - kGolden * (high - low);
      at_left = squares(left);
    } else {
      low = left;
      left = right;
      at_left = at_right;
      right = low + kGolden * (high - low);
      at_right = squares(right);
    }
  }
  const double found = 0.5 * (low + high);
  return squares(found) < least ? found : best;
}

}  // namespace

void CostParts::add(double samples, double work, double seconds) {
  const std::array row{1.0 / seconds, samples / seconds, work / seconds};
  std::size_t next = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j <= i; ++j, ++next) {
      products_[next] = kReadingRetention * products_[next] + row[i] * row[j];
    }
    targets_[i] = kReadingRetention * targets_[i] + row[i];
  }
  readings_ = kReadingRetention * readings_ + 1.0;
}

CostParts::Fit CostParts::fit(double ratio, double noise) const {
  const auto& [p11, p1b, pbb, p1w, pbw, pww] = products_;
  const double p1x = p1w + ratio * p1b;
  const double pxx = pww + ratio * (2.0 * pbw + ratio * pbb);
  const double tx = targets_[2] + ratio * targets_[1];
  // Before any reading, a step by itself may cost as much as the mean work of a step.
  const double slope = targets_[2] / pww;
  const double ridge = noise * p11 / (slope * slope * pww);
  const double determinant = (p11 + ridge) * pxx - p1x * p1x;
  Fit alone{.per_work = tx / pxx};
  alone.squares = readings_ - alone.per_work * tx;
  if (!(determinant > 1e-12 * p11 * pxx)) {
    return alone;
  }
  Fit both{
      .per_step = (targets_[0] * pxx - p1x * tx) / determinant,
      .per_work = ((p11 + ridge) * tx - p1x * targets_[0]) / determinant};
  both.squares = readings_ - both.per_step * targets_[0] - both.per_work * tx;
  return both.per_step > 0.0 && both.per_work > 0.0 ? both : alone;
}

void CostParts::exchange(StateExchange& state) {
  std::vector<double> products(products_.begin(), products_.end());
  std::vector<double> targets(targets_.begin(), targets_.end());
  state.fixed_list("products", products);
  state.fixed_list("targets", targets);
  state.field("readings", readings_);
  std::ranges::copy(products, products_.begin());
  std::ranges::copy(targets, targets_.begin());
}

double pooled_ratio(std::span<const CostParts* const> workers) {
  std::vector<Heard> heard;
  for (const CostParts* const parts : workers) {
    if (parts->readings() > 0.0) {
      heard.push_back({.parts = parts, .noise = noise_of(*parts)});
    }
  }
  return heard.empty() ? 0.0 : best_ratio(heard);
}

}  // namespace isochron
