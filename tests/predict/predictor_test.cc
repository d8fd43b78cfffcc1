#include "isochron/baselines/predictor.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/predict/series.h"
#include <gtest/gtest.h>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

/// What every kind must do.
class PredictorTest : public testing::TestWithParam<std::string> {
 protected:
  const PredictorOptions options_{.kind = GetParam()};
};

std::vector<SeriesStep> noisy_series(std::size_t steps) {
  Random random({3});
  std::vector<SeriesStep> series;
  for (std::size_t k = 0; k < steps; ++k) {
    series.push_back({100.0 + 5.0 * random.normal(), {.cpu = random.uniform(), .memory = random.uniform()}});
  }
  return series;
}

TEST_P(PredictorTest, KnowsNothingBeforeTheFirstSpeed) {
  EXPECT_EQ(make_predictor(options_)->predict({}), 0.0);
}

TEST_P(PredictorTest, PredictsAConstantSpeedFromTheFirstStepOn) {
  const auto predictor = make_predictor(options_);
  for (int k = 0; k < 300; ++k) {
    predictor->observe(250.0, {.cpu = 0.5, .memory = 0.25});
    ASSERT_NEAR(predictor->predict({.cpu = 0.5, .memory = 0.25}), 250.0, 1e-6) << k;
  }
}

TEST_P(PredictorTest, FollowsAStepChange) {
  const auto predictor = make_predictor(options_);
  for (int k = 0; k < 100; ++k) {
    predictor->observe(100.0, {});
  }
  for (int k = 0; k < 30; ++k) {
    predictor->observe(40.0, {});
  }
  // The slowest to follow is ewma: 60 x 0.8^30 = 0.07 is left of the old speed.
  EXPECT_NEAR(predictor->predict({}), 40.0, 0.8);
}

TEST_P(PredictorTest, ScalesWithTheUnitOfSpeed) {
  const auto small = make_predictor(options_);
  const auto large = make_predictor(options_);
  for (const auto& [speed, usage] : noisy_series(200)) {
    small->observe(speed / 1024.0, usage);  // a power of two, so that only exponents differ
    large->observe(speed * 1024.0, usage);
  }
  EXPECT_DOUBLE_EQ(small->predict({}) * 1048576.0, large->predict({}));
}

TEST_P(PredictorTest, HoldsWhenAReadingIsMissing) {
  const auto predictor = make_predictor(options_);
  for (const auto& [speed, usage] : noisy_series(50)) {
    predictor->observe(speed, usage);
  }
  const double before = predictor->predict({});
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double nonsense : {0.0, -1.0, kUnknown, kInfinity, -kInfinity}) {
    predictor->observe(nonsense, {.cpu = 1.0, .memory = 1.0});
    EXPECT_EQ(predictor->predict({}), before) << nonsense;
  }
}

TEST_P(PredictorTest, StaysPositiveAndFiniteWhateverItIsTold) {
  Random random({5});
  const auto predictor = make_predictor(options_);
  predictor->observe(1e-300, {});
  const auto usage = [&] { return random.below(3) == 0 ? kUnknown : random.uniform(); };
  for (int k = 0; k < 2000; ++k) {
    // Speeds over 600 orders of magnitude.
    predictor->observe(std::pow(10.0, 600.0 * random.uniform() - 300.0), {usage(), usage()});
    const double speed = predictor->predict({usage(), usage()});
    ASSERT_TRUE(std::isfinite(speed) && speed > 0.0) << k << ": " << speed;
  }
}

TEST_P(PredictorTest, ContinuesIdenticallyAfterRestore) {
  const auto series = noisy_series(300);
  for (const std::size_t cut : {0U, 2U, 10U, 150U}) {
    const auto original = make_predictor(options_);
    for (std::size_t k = 0; k < cut; ++k) {
      original->observe(series[k].speed, series[k].usage);
    }
    const auto copy = make_predictor(options_);
    restore_state(*copy, State::parse(save_state(*original).serialize()));
    for (std::size_t k = cut; k < series.size(); ++k) {
      ASSERT_EQ(copy->predict(series[k].usage), original->predict(series[k].usage)) << cut << ", " << k;
      original->observe(series[k].speed, series[k].usage);
      copy->observe(series[k].speed, series[k].usage);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PredictorTest, testing::ValuesIn(predictor_kinds()), [](const auto& kind) {
  return kind.param;
});

TEST(MakePredictorTest, RefusesWhatIsNotPermitted) {
  EXPECT_THROW((void)make_predictor({.kind = "lstm"}), std::invalid_argument);
  EXPECT_THROW((void)make_predictor({.kind = "ewma", .ewma = 0.0}), std::invalid_argument);
  EXPECT_THROW((void)make_predictor({.kind = "ewma", .ewma = 1.5}), std::invalid_argument);
  EXPECT_THROW((void)make_predictor({.kind = "ar", .order = 0}), std::invalid_argument);
  EXPECT_THROW((void)make_predictor({.kind = "ar", .order = 17}), std::invalid_argument);
}

TEST(MemorylessTest, PredictsTheLastSpeed) {
  const auto predictor = make_predictor({.kind = "memoryless"});
  predictor->observe(10.0, {});
  predictor->observe(30.0, {});
  EXPECT_EQ(predictor->predict({}), 30.0);
}

TEST(EwmaTest, WeighsTheNewestSpeedByAlpha) {
  const auto predictor = make_predictor({.kind = "ewma", .ewma = 0.25});
  predictor->observe(8.0, {});
  predictor->observe(16.0, {});
  EXPECT_EQ(predictor->predict({}), 10.0);  // 8 + (16 - 8) / 4
  predictor->observe(2.0, {});
  EXPECT_EQ(predictor->predict({}), 8.0);  // 10 + (2 - 10) / 4
}

}  // namespace
}  // namespace isochron
