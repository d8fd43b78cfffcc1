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
constexpr double kEnoughReadings = 6.0;
constexpr double kLeastChange = 0.15;   // of the logarithm of a worker's time
constexpr double kOddDeviations = 5.0;  // of the same
constexpr double kMostRatio = 8.0;
constexpr double kMostSquareRatio = 64.0;
constexpr double kLeastRatio = 1.0 / 64.0;  // of those that are tried, besides 0
constexpr int kNarrowings = 24;

/// A worker whose readings are far from any line, such as one whose speed has changed, says little.
struct Heard {
  const CostParts* parts;
  CostRatios ratios;  // as far as they are known
  double noise;       // the variance of its relative errors
};

/// As small as any cost per sample makes the squares of errors.
double noise_of(const CostParts& parts, double per_square) {
  const auto squares = [&](double ratio) {
    return parts.fit({.per_sample = ratio, .per_square = per_square}, kFirstVariance).squares;
  };
  double least = squares(0.0);
  double ratio = kLeastRatio;
  while (ratio <= kMostRatio) {
    least = std::min(least, squares(ratio));
    ratio *= 2.0;
  }
  const double known = std::max(parts.readings() - 3.0, 0.0);
  return std::max((std::max(least, 0.0) + kFirstReadings * kFirstVariance) / (known + kFirstReadings), kLeastVariance);
}

/// Where `squares` is least, from 0 to `most`: by golden section, around the best of a few.
template <class Squares>
double best_ratio(const Squares& squares, double most) {
  double best = 0.0;
  double least = squares(0.0);
  double ratio = kLeastRatio;
  while (ratio <= most) {
    if (const double left = squares(ratio); left < least) {
      best = ratio;
      least = left;
    }
    ratio *= 2.0;
  }
  double low = best > kLeastRatio ? 0.5 * best : 0.0;
  double high = std::clamp(2.0 * best, kLeastRatio, most);
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

/// The ratio at which the errors of all workers are least; `set` puts one into a worker's.
template <class Set>
double pooled(std::span<const Heard> workers, double most, const Set& set) {
  if (workers.empty()) {
    return 0.0;
  }
  const auto squares = [&](double ratio) {
    double sum = ratio * ratio;  // before any reading, it may be as much as the work of the mean sample
    for (const Heard& one : workers) {
      CostRatios ratios = one.ratios;
      set(ratios, ratio);
      sum += one.parts->fit(ratios, one.noise).squares / one.noise;
    }
    return sum;
  };
  return best_ratio(squares, most);
}

}  // namespace

void CostParts::add(double samples, double work, double seconds, double squares) {
  const std::array row{1.0 / seconds, samples / seconds, work / seconds, squares / seconds};
  std::size_t next = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j, ++next) {
      products_[next] = kReadingRetention * products_[next] + row[i] * row[j];
    }
    targets_[i] = kReadingRetention * targets_[i] + row[i];
  }
  readings_ = kReadingRetention * readings_ + 1.0;
}

CostParts::Fit CostParts::fit(const CostRatios& ratios, double noise) const {
  const auto& [p11, p1b, pbb, p1l, pbl, pll, p1s, pbs, pls, pss] = products_;
  const double square = ratios.per_square;
  const double ratio = ratios.per_sample;
  // With the work w = l + per_square s, and x, that of the samples by themselves included.
  const double p1w = p1l + square * p1s;
  const double pbw = pbl + square * pbs;
  const double pww = pll + square * (2.0 * pls + square * pss);
  const double tw = targets_[2] + square * targets_[3];
  const double p1x = p1w + ratio * p1b;
  const double pxx = pww + ratio * (2.0 * pbw + ratio * pbb);
  const double tx = tw + ratio * targets_[1];
  // Before any reading, a step by itself may cost as much as the mean work of a step.
  const double slope = tw / pww;
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

bool CostParts::contradict(
    double samples, double work, double seconds, double squares, const CostRatios& ratios) const {
  if (readings_ < kEnoughReadings) {
    return false;
  }
  const Fit line = fit(ratios, kFirstVariance);
  const double expected =
      line.per_step + line.per_work * (work + ratios.per_square * squares + ratios.per_sample * samples);
  const double variance = std::max(line.squares, 0.0) / (readings_ - 2.0);
  const double change = std::abs(std::log(seconds / expected));
  return change > std::max(kLeastChange, kOddDeviations * std::sqrt(variance));
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

double pooled_ratio(std::span<const CostParts* const> workers, double per_square) {
  std::vector<Heard> heard;
  for (const CostParts* const parts : workers) {
    if (parts->readings() > 0.0) {
      heard.push_back({.parts = parts, .ratios = {.per_square = per_square}, .noise = noise_of(*parts, per_square)});
    }
  }
  return pooled(heard, kMostRatio, [](CostRatios& ratios, double ratio) { ratios.per_sample = ratio; });
}

double pooled_square_ratio(std::span<const KnownParts> workers) {
  std::vector<Heard> heard;
  for (const auto& [parts, ratios] : workers) {
    if (parts->readings() > 0.0) {
      heard.push_back({.parts = parts, .ratios = ratios, .noise = noise_of(*parts, ratios.per_square)});
    }
  }
  return pooled(heard, kMostSquareRatio, [](CostRatios& ratios, double ratio) { ratios.per_square = ratio; });
}

}  // namespace isochron
