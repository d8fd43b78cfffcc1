#include "isochron/sim/noise.h"

#include <cmath>
#include <set>
#include <vector>

#include "small_cluster.h"
#include <gtest/gtest.h>

#include "isochron/sim/builtin.h"

namespace isochron::sim {
namespace {

constexpr int kSteps = 20000;

std::vector<double> log_known(const Noise& noise, int steps) {
  NoiseProcess process(noise, 1, 2);
  std::vector<double> values;
  for (int step = 0; step < steps; ++step) {
    process.advance(step);
    values.push_back(std::log(process.known()));
  }
  return values;
}

std::vector<double> log_surprise(const Noise& noise) {
  NoiseProcess process(noise, 1, 2);
  std::vector<double> values;
  for (int step = 0; step < kSteps; ++step) {
    process.advance(step);
    values.push_back(std::log(process.surprise()));
  }
  return values;
}

/// Mean of x_n x_(n + lag), the means being zero.
double moment(const std::vector<double>& values, std::size_t lag) {
  double sum = 0.0;
  for (std::size_t i = lag; i < values.size(); ++i) {
    sum += values[i] * values[i - lag];
  }
  return sum / static_cast<double>(values.size() - lag);
}

TEST(NoiseTest, IsAFunctionOfSeedWorkerAndStepAlone) {
  const Noise noise{.sigma = 0.1, .spike_probability = 0.1, .drift = 0.01};
  NoiseProcess walked(noise, 1, 2);
  for (int step = 0; step <= 50; ++step) {
    walked.advance(step);
    walked.advance(step);
  }
  NoiseProcess jumped(noise, 1, 2);
  jumped.advance(50);
  EXPECT_EQ(walked.known(), jumped.known());
  EXPECT_EQ(walked.surprise(), jumped.surprise());
  NoiseProcess other(noise, 1, 3);
  other.advance(50);
  EXPECT_NE(other.surprise(), jumped.surprise());
  NoiseProcess reseeded(noise, 2, 2);
  reseeded.advance(50);
  EXPECT_NE(reseeded.surprise(), jumped.surprise());
}

TEST(NoiseTest, WhiteNoiseHasItsStandardDeviationAndNoMemory) {
  const auto values = log_surprise({.sigma = 0.05});
  // Standard errors: 0.05 / sqrt(2 n) = 0.00025 of the deviation, 1 / sqrt(n) = 0.007 of the correlation.
  EXPECT_NEAR(std::sqrt(moment(values, 0)), 0.05, 0.00125);
  EXPECT_NEAR(moment(values, 1) / moment(values, 0), 0.0, 0.035);
}

TEST(NoiseTest, AutocorrelatedNoiseKeepsItsDeviationAndCanBeKnown) {
  const auto values = log_known({.sigma = 0.1, .autocorrelation = 0.9}, kSteps);
  // About n (1 - .9) / (1 + .9) = 1050 independent values: 0.1 / sqrt(2100) = 0.0022; of the correlation,
  // sqrt((1 - .81) / n) = 0.0031.
  EXPECT_NEAR(std::sqrt(moment(values, 0)), 0.1, 0.011);
  EXPECT_NEAR(moment(values, 1) / moment(values, 0), 0.9, 0.016);
  for (const double value : log_surprise({.sigma = 0.1, .autocorrelation = 0.9})) {
    ASSERT_EQ(value, 0.0);
  }
}

TEST(NoiseTest, SpikesAreRareAndBounded) {
  int spikes = 0;
  int below_middle = 0;
  for (const double value : log_surprise({.spike_probability = 0.01, .spike_low = 3.0, .spike_high = 10.0})) {
    const double factor = std::exp(value);
    if (factor > 1.0) {
      ++spikes;
      EXPECT_GE(factor, 3.0 - 1e-12);
      EXPECT_LE(factor, 10.0 + 1e-12);
      below_middle += factor < 60.0 / 13.0 ? 1 : 0;
    }
  }
  // 200 expected, standard deviation 14. The median of 1/x uniform between 1/10 and 1/3 is x = 60/13.
  EXPECT_NEAR(spikes, 200, 70);
  EXPECT_NEAR(below_middle, 0.5 * spikes, 35);
}

TEST(NoiseTest, DriftIsARandomWalkWithinOneToEight) {
  const auto small = log_known({.drift = 0.01}, kSteps);
  double squares = 0.0;
  for (std::size_t i = 1; i < small.size(); ++i) {
    squares += (small[i] - small[i - 1]) * (small[i] - small[i - 1]);
  }
  EXPECT_NEAR(std::sqrt(squares / kSteps), 0.01, 0.0003);
  for (const double sigma : {0.3, 10.0}) {
    double farthest = 0.0;
    for (const double value : log_known({.drift = sigma}, kSteps)) {
      farthest = std::max(farthest, std::abs(value));
    }
    EXPECT_LE(farthest, std::log(8.0) + 1e-12);
    EXPECT_GT(farthest, std::log(7.0));
  }
}

TEST(NoiseTest, SwitchingOnOneKindLeavesTheOthersAlone) {
  NoiseProcess plain({.sigma = 0.1}, 1, 2);
  NoiseProcess drifting({.sigma = 0.1, .drift = 0.02}, 1, 2);
  for (int step = 0; step < 20; ++step) {
    plain.advance(step);
    drifting.advance(step);
    EXPECT_EQ(plain.surprise(), drifting.surprise());
  }
}

TEST(NoiseTest, EveryPolicySeesTheSame) {
  ClusterSpec cluster = noisy(builtin_cluster("dynamic", 40), 0.1);
  cluster.common_noise = 0.1;
  cluster.workers[1].noise.drift = 0.02;
  cluster.workers[2].noise.autocorrelation = 0.8;
  const Options options{.global_batch = 128, .steps = 40, .seed = 3};
  const auto uniform = records_of(cluster, options, "uniform");
  const auto oracle = records_of(cluster, options, "oracle");
  for (std::size_t step = 0; step < uniform.size(); ++step) {
    for (std::size_t k = 0; k < 4; ++k) {
      const WorkerStep& a = uniform[step].workers[k];
      const WorkerStep& b = oracle[step].workers[k];
      // The cost is linear, so seconds a sample are the noise, whatever the batch.
      EXPECT_NEAR(
          a.compute_seconds / static_cast<double>(a.batch), b.compute_seconds / static_cast<double>(b.batch), 1e-15);
    }
  }
}

TEST(NoiseTest, CommonNoiseIsSharedByAll) {
  ClusterSpec cluster = small_cluster({1, 2, 4});
  cluster.common_noise = 0.2;
  std::set<double> factors;
  for (const StepRecord& record : records_of(cluster, {.global_batch = 30, .steps = 20}, "uniform")) {
    const double factor = record.workers[0].compute_seconds / 10.0;
    EXPECT_DOUBLE_EQ(record.workers[1].compute_seconds, 5.0 * factor);
    EXPECT_DOUBLE_EQ(record.workers[2].compute_seconds, 2.5 * factor);
    factors.insert(factor);
  }
  EXPECT_EQ(factors.size(), 20U);
}

}  // namespace
}  // namespace isochron::sim
