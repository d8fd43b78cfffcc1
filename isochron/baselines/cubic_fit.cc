#include "isochron/baselines/cubic_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <ranges>
#include <utility>

#include "isochron/core/error.h"

namespace isochron {
namespace {

constexpr std::size_t kTerms = 4;  // of a cubic
using Coefficients = std::array<double, kTerms>;

// The normal equations, one row per term with its right-hand side last.
using Equations = std::array<std::array<double, kTerms + 1>, kTerms>;

// Batches and times are divided by their largest, so that the equations are well scaled.
Equations normal_equations(const std::vector<Curve::Point>& points, Curve::Point scale, std::size_t terms) {
  Equations equations{};
  for (const Curve::Point& point : points) {
    Coefficients powers{1.0};
    for (std::size_t i = 1; i < terms; ++i) {
      powers.at(i) = powers.at(i - 1) * (point.batch / scale.batch);
    }
    for (std::size_t row = 0; row < terms; ++row) {
      for (std::size_t column = 0; column < terms; ++column) {
        equations.at(row).at(column) += powers.at(row) * powers.at(column);
      }
      equations.at(row).back() += powers.at(row) * (point.seconds / scale.seconds);
    }
  }
  return equations;
}

// Gaussian elimination with row pivots.
Coefficients solve(Equations equations, std::size_t terms) {
  for (std::size_t column = 0; column < terms; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < terms; ++row) {
      if (std::abs(equations.at(row).at(column)) > std::abs(equations.at(pivot).at(column))) {
        pivot = row;
      }
    }
    std::swap(equations.at(column), equations.at(pivot));
    for (std::size_t row = 0; row < terms; ++row) {
      if (row == column) {
        continue;
      }
      const double factor = equations.at(row).at(column) / equations.at(column).at(column);
      for (std::size_t i = column; i <= kTerms; ++i) {
        equations.at(row).at(i) -= factor * equations.at(column).at(i);
      }
    }
  }
  Coefficients result{};
  for (std::size_t i = 0; i < terms; ++i) {
    result.at(i) = equations.at(i).back() / equations.at(i).at(i);
  }
  return result;
}

double value_at(const Coefficients& coefficients, double x) {
  double result = 0.0;
  for (const double coefficient : std::ranges::reverse_view(coefficients)) {
    result = result * x + coefficient;
  }
  return result;
}

}  // namespace

Curve fit_cubic(const std::vector<Curve::Point>& points) {
  ISO_CHECK(!points.empty(), "a fit needs a point");
  constexpr int kSegments = 32;
  constexpr double kLeastSeconds = 1e-9;  // of the largest time: a fit that dips below zero must not make a worker free
  const Curve::Point scale{
      .batch = points.back().batch, .seconds = std::ranges::max(points, {}, &Curve::Point::seconds).seconds};
  const std::size_t terms = std::min(kTerms, points.size());
  const Coefficients coefficients = solve(normal_equations(points, scale, terms), terms);

  std::vector<Curve::Point> table;
  const double first = points.front().batch / scale.batch;
  double level = kLeastSeconds;
  for (int i = 0; i <= kSegments; ++i) {
    const double x = first + (1.0 - first) * i / kSegments;
    const double value = value_at(coefficients, x);
    level = std::max(level, std::isfinite(value) ? value : level);
    if (table.empty() || x * scale.batch > table.back().batch) {
      table.push_back({.batch = x * scale.batch, .seconds = level * scale.seconds});
    }
  }
  table.push_back({.batch = 2.0 * scale.batch, .seconds = 2.0 * level * scale.seconds});
  return Curve::table(std::move(table));
}

}  // namespace isochron
