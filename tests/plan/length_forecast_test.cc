#include "isochron/plan/length_forecast.h"

#include "tests/plan/machines.h"
#include <gtest/gtest.h>

namespace isochron::plan {
namespace {

LengthForecast forecast(const std::vector<Group>& groups, std::int64_t batch, const sim::Lengths& lengths) {
  const Step best = predict_step(groups, {}, batch);
  return forecast_lengths(groups, best, predict_step(groups, {}, batch, Shares::kEqual), lengths);
}

TEST(LengthForecastTest, SamplesThatCostTheSameChangeNothing) {
  const std::vector<Group> groups{linear_group("fast", 0.01), linear_group("slow", 0.03)};
  const LengthForecast same = forecast(groups, 64, {.given = {100.0}});
  // 48 and 16 samples take 0.48 s, 32 and 32 take 0.96 s.
  EXPECT_NEAR(same.by_cost.step_seconds, 0.48, 1e-5);
  EXPECT_NEAR(same.by_count.step_seconds, 0.48, 1e-5);
  EXPECT_NEAR(same.equal.samples_per_second, 64.0 / 0.96, 1e-3);
  EXPECT_NEAR(same.by_cost.padding, 0.0, 1e-9);
}

TEST(LengthForecastTest, PackedByCostIsNearTheBoundAndByCountIsNot) {
  const std::vector<Group> groups{linear_group("fast", 0.01, 4), linear_group("slow", 0.08, 4)};
  const LengthForecast packed = forecast(groups, 128, {});
  // Four times 1 / 0.01 and 1 / 0.08 a second are 450 samples/s, which nothing that is indivisible reaches.
  EXPECT_LT(packed.by_cost.samples_per_second, 450.0 * 1.0001);
  EXPECT_GT(packed.by_cost.samples_per_second, 450.0 * 0.99);
  EXPECT_GT(packed.by_cost.samples_per_second, 1.2 * packed.by_count.samples_per_second);
  EXPECT_GT(packed.by_count.samples_per_second, packed.equal.samples_per_second);
  EXPECT_NEAR(packed.by_count.padding, 0.0, 1e-9);
}

TEST(LengthForecastTest, PaddingIsWhatIsComputedInVain) {
  // One machine, and half of all samples three times as long as the others: of 3 b computed, 2 b were drawn.
  const LengthForecast one =
      forecast({linear_group("one", 0.01)}, 1024, {.given = {1.0, 3.0}, .collation = Collation::kPadded});
  EXPECT_NEAR(one.by_count.padding, 1.0 / 3.0, 0.01);
  EXPECT_NEAR(one.by_count.step_seconds, 10.24 * 1.5, 0.2);
  // Two machines can part a quarter of samples that are nine times as long, 3 times the mean, from the others, a
  // third of it: 256 of 3 and 768 of 1/3. By count each computes 512 times 3, of which a third was drawn.
  const LengthForecast two =
      forecast({linear_group("two", 0.01, 2)}, 1024, {.given = {1, 1, 1, 9}, .collation = Collation::kPadded});
  EXPECT_LT(two.by_cost.padding, 0.1);
  EXPECT_NEAR(two.by_count.padding, 2.0 / 3.0, 0.01);
  EXPECT_NEAR(two.by_cost.samples_per_second / two.by_count.samples_per_second, 2.0, 0.1);
}

}  // namespace
}  // namespace isochron::plan
