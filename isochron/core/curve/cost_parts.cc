#include "isochron/core/curve/cost_parts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

namespace isochron {
namespace {

constexpr double kReadingRetention = 0.99;   // of old readings, at every new one
constexpr double kLeastReadingNoise = 1e-6;  // variance of a relative error
constexpr double kFirstReadingNoise = 1e-2;  // the same while there are hardly more readings than unknowns
constexpr double kFewReadings = 6.0;

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

/// The unknowns of `used`, by Cholesky's decomposition; the others are 0. None if the readings do not tell them apart.
struct Solution {
  Vector values{};
  double inverse_bb = 0.0;  // of the matrix, at per_sample
};

std::optional<Solution> solve(const Matrix& matrix, const Vector& target, const std::array<bool, 3>& used) {
  Matrix lower{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = used[i] && used[j] ? matrix[i][j] : (i == j ? 1.0 : 0.0);
      for (std::size_t m = 0; m < j; ++m) {
        sum -= lower[i][m] * lower[j][m];
      }
      if (i == j) {
        if (!(sum > 1e-12 * (used[i] ? matrix[i][i] : 1.0))) {
          return std::nullopt;
        }
        lower[i][i] = std::sqrt(sum);
      } else {
        lower[i][j] = sum / lower[j][j];
      }
    }
  }
  const auto back = [&](Vector right) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t m = 0; m < i; ++m) {
        right[i] -= lower[i][m] * right[m];
      }
      right[i] /= lower[i][i];
    }
    for (std::size_t i = 3; i-- > 0;) {
      for (std::size_t m = i + 1; m < 3; ++m) {
        right[i] -= lower[m][i] * right[m];
      }
      right[i] /= lower[i][i];
    }
    return right;
  };
  Solution solution{.values = back({used[0] ? target[0] : 0.0, used[1] ? target[1] : 0.0, target[2]})};
  solution.inverse_bb = back({0.0, 1.0, 0.0})[1];
  return solution;
}

/// Squares of the errors, up to what all solutions share.
double squares(const Matrix& matrix, const Vector& target, const Vector& values) {
  double sum = 0.0;
  for (std::size_t i = 0; i < 3; ++i) {
    sum -= 2.0 * values[i] * target[i];
    for (std::size_t j = 0; j < 3; ++j) {
      sum += values[i] * matrix[i][j] * values[j];
    }
  }
  return sum;
}

}  // namespace

void CostParts::add(double samples, double work, double seconds) {
  const Vector row{1.0 / seconds, samples / seconds, work / seconds};
  std::size_t next = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j <= i; ++j, ++next) {
      products_[next] = kReadingRetention * products_[next] + row[i] * row[j];
    }
    targets_[i] = kReadingRetention * targets_[i] + row[i];
  }
  readings_ = kReadingRetention * readings_ + 1.0;
}

CostParts::Estimate CostParts::estimate() const {
  if (readings_ == 0.0) {
    return {};
  }
  const auto& p = products_;
  Matrix matrix{{{p[0], p[1], p[3]}, {p[1], p[2], p[4]}, {p[3], p[4], p[5]}}};
  // What time alone would be per unit of work, and how noisy readings are.
  const double slope = targets_[2] / p[5];
  double noise = kFirstReadingNoise;
  if (const auto free = solve(matrix, targets_, {true, true, true}); free && readings_ > kFewReadings) {
    const double left = readings_ + squares(matrix, targets_, free->values);
    noise = std::max(left / (readings_ - 3.0), kLeastReadingNoise);
  }
  // Before any reading, a step and a sample by themselves may cost as much as the work of a step and of a sample.
  const double mean_work = std::sqrt(p[5] / p[0]);
  matrix[0][0] += noise / (slope * slope * mean_work * mean_work);
  matrix[1][1] += noise / (slope * slope);
  std::optional<Solution> best;
  double least = 0.0;
  for (const auto& used :
       {std::array{true, true, true}, {false, true, true}, {true, false, true}, {false, false, true}}) {
    const auto found = solve(matrix, targets_, used);
    if (!found || std::ranges::any_of(found->values, [](double part) { return part < 0.0; })) {
      continue;
    }
    const double left = squares(matrix, targets_, found->values);
    if (!best || left < least) {
      best = found;
      least = left;
    }
  }
  const auto whole = solve(matrix, targets_, {true, true, true});
  if (!best || !whole || best->values[2] <= 0.0) {
    return {.per_work = slope};
  }
  const Vector& parts = best->values;
  const double variance = noise * whole->inverse_bb / (parts[2] * parts[2]);
  return {
      .per_step = parts[0],
      .per_sample = parts[1],
      .per_work = parts[2],
      .ratio_variance = std::clamp(variance, 1e-9, 1.0)};
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

double pooled_ratio(std::span<const CostParts::Estimate> estimates) {
  double weights = 1.0;  // of the guess that there is no cost per sample
  double sum = 0.0;
  for (const CostParts::Estimate& estimate : estimates) {
    const double weight = 1.0 / estimate.ratio_variance - 1.0;
    if (weight > 0.0 && estimate.per_work > 0.0) {
      weights += weight;
      sum += weight * estimate.per_sample / estimate.per_work;
    }
  }
  return sum / weights;
}

}  // namespace isochron
