#include "isochron/core/predict/expected_max.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

double sampled(const std::vector<double>& log_means, const std::vector<double>& sigmas, int draws) {
  Random random({42});
  double sum = 0.0;
  for (int i = 0; i < draws; ++i) {
    double longest = 0.0;
    for (std::size_t k = 0; k < log_means.size(); ++k) {
      longest = std::max(longest, std::exp(log_means[k] + sigmas[k] * random.normal()));
    }
    sum += longest;
  }
  return sum / draws;
}

TEST(ExpectedMaxTest, IsThePlainMaximumWithoutNoise) {
  const std::vector<double> log_means{std::log(1.0), std::log(3.0), std::log(2.0)};
  EXPECT_NEAR(expected_max(log_means, std::vector<double>(3, 0.0)), 3.0, 1e-4);
}

TEST(ExpectedMaxTest, OfOneWorkerIsTheMeanOfTheLogNormal) {
  EXPECT_NEAR(expected_max(std::vector{0.0}, std::vector{0.2}), std::exp(0.2 * 0.2 / 2.0), 1e-4);
}

TEST(ExpectedMaxTest, AgreesWithSampling) {
  // The standard error of 200,000 draws is below 0.2 / sqrt(200,000) = 4.5e-4; four of them, plus the integral's own.
  const std::vector<std::vector<double>> means{{0.0, 0.0, 0.0, 0.0}, {0.0, 0.0, 0.0, -0.1}, {0.0, -2.0, 0.05, 0.0}};
  const std::vector<std::vector<double>> sigmas{
      {0.05, 0.05, 0.05, 0.05}, {0.02, 0.02, 0.02, 0.2}, {0.2, 0.1, 0.01, 0.0}};
  for (const auto& mean : means) {
    for (const auto& sigma : sigmas) {
      EXPECT_NEAR(expected_max(mean, sigma), sampled(mean, sigma, 200000), 2.5e-3);
    }
  }
}

TEST(ExpectedMaxTest, AgreesWithSamplingForManyWorkers) {
  std::vector<double> means(1000);
  std::vector<double> sigmas(1000);
  for (std::size_t k = 0; k < means.size(); ++k) {
    sigmas[k] = 0.02 + 0.0001 * static_cast<double>(k);
    means[k] = -0.5 * sigmas[k];
  }
  EXPECT_NEAR(expected_max(means, sigmas), sampled(means, sigmas, 4000), 4e-3);
}

// A noise beyond all measure makes infinities of the means, and their differences are no numbers.
TEST(ExpectedMaxTest, SurvivesWhatIsNoNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  for (const double odd : {kInfinity, -kInfinity, nan, 1e308, -1e308}) {
    (void)expected_max(std::vector<double>{0.0, odd}, std::vector<double>{0.1, 0.1});
    (void)expected_max(std::vector<double>{odd, odd}, std::vector<double>{0.1, odd});
  }
}

}  // namespace
}  // namespace isochron
