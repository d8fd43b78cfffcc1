// The standard normal distribution: distribution function and quantile.
//
// `normal_quantile` is Wichura's AS241 (Applied Statistics 37, 1988), relative error about 1e-16.
// Arguments outside the open interval (0, 1) give -inf or +inf.
#pragma once

namespace isochron {

double normal_cdf(double x);
double normal_quantile(double probability);

}  // namespace isochron
