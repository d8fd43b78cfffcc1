#include "isochron/baselines/ar.h"

#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace isochron {
namespace {

constexpr std::int64_t kMostOrder = 16;
constexpr double kForgetting = 0.98;
// In the units of the regression: a hundredth of the first speed, squared.
constexpr double kRidge = 1e-4;

std::int64_t checked_order(std::int64_t order) {
  if (order < 1 || order > kMostOrder) {
    throw std::invalid_argument(
        "order is " + std::to_string(order) + "; permitted: 1 to " + std::to_string(kMostOrder));
  }
  return order;
}

// Solves m x = b for a positive definite m (row by row) by Cholesky's method; x replaces b.
void solve_in_place(std::vector<double> m, std::vector<double>& b) {
  const std::size_t n = b.size();
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t column = 0; column <= row; ++column) {
      double sum = m[row * n + column];
      for (std::size_t k = 0; k < column; ++k) {
        sum -= m[row * n + k] * m[column * n + k];
      }
      m[row * n + column] = row == column ? std::sqrt(sum) : sum / m[column * n + column];
    }
  }
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t k = 0; k < row; ++k) {
      b[row] -= m[row * n + k] * b[k];
    }
    b[row] /= m[row * n + row];
  }
  for (std::size_t row = n; row-- > 0;) {
    for (std::size_t k = row + 1; k < n; ++k) {
      b[row] -= m[k * n + row] * b[k];
    }
    b[row] /= m[row * n + row];
  }
}

}  // namespace

AutoRegression::AutoRegression(std::int64_t order)
    : terms_(static_cast<std::size_t>(checked_order(order)) + 1),
      past_(terms_ - 1),
      moments_(terms_ * terms_, 0.0),
      targets_(terms_, 0.0),
      weights_(terms_, 0.0) {
  weights_[1] = 1.0;
}

double AutoRegression::predict(const Usage& /*now*/) const {
  if (!past_.full()) {
    return past_.size() == 0 ? 0.0 : past_[0];
  }
  const std::vector<double> x = regressors();
  const double change = std::inner_product(x.begin(), x.end(), weights_.begin(), 0.0);
  return past_.sane(unit_ * (1.0 + change));
}

void AutoRegression::learn(double speed, const Usage& /*usage*/) {
  if (past_.size() == 0) {
    unit_ = speed;
  }
  if (past_.full()) {
    add_equation(regressors(), speed / unit_ - 1.0);
    fit();
  }
  past_.push(speed);
}

std::vector<double> AutoRegression::regressors() const {
  std::vector<double> x(terms_, 1.0);
  for (std::size_t age = 0; age + 1 < terms_; ++age) {
    x[age + 1] = past_[age] / unit_ - 1.0;
  }
  return x;
}

void AutoRegression::add_equation(const std::vector<double>& regressors, double target) {
  for (std::size_t row = 0; row < terms_; ++row) {
    for (std::size_t column = 0; column < terms_; ++column) {
      double& moment = moments_[row * terms_ + column];
      moment = kForgetting * moment + regressors[row] * regressors[column];
    }
    targets_[row] = kForgetting * targets_[row] + regressors[row] * target;
  }
}

void AutoRegression::fit() {
  std::vector<double> moments = moments_;
  for (std::size_t i = 0; i < terms_; ++i) {
    moments[i * terms_ + i] += kRidge;
  }
  weights_ = targets_;
  weights_[1] += kRidge;
  solve_in_place(std::move(moments), weights_);
}

void AutoRegression::exchange(StateExchange& state) {
  state.field("unit", unit_);
  state.part("past", past_);
  state.fixed_list("moments", moments_);
  state.fixed_list("targets", targets_);
  state.fixed_list("weights", weights_);
}

}  // namespace isochron
