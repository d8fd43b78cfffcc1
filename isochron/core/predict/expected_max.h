// The expected maximum of independent log-normal times: what a synchronous step costs on average.
//
//   E[max_k X_k] = x_0 + integral from x_0 of 1 - prod_k P(X_k <= x) dx,   log X_k ~ N(log_mean_k, sigma_k)
//
// taken on the logarithm of x with the trapezoidal rule. O(K x points); relative error below 1e-3 of the spread,
// checked against sampling. Balancing the means does not minimise this: the difference is what the risk rule earns.
#pragma once

#include <span>

namespace isochron {

/// Both spans have the same length, at least 1; sigmas >= 0.
[[nodiscard]] double expected_max(std::span<const double> log_means, std::span<const double> sigmas);

}  // namespace isochron
