#include "isochron/core/policy/cold_sizes.h"

#include <gtest/gtest.h>

#include "isochron/core/policy/controller.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

Reading warm_step(std::int64_t batch, double seconds) {
  return {.valid = true, .batch = batch, .seconds = seconds};
}

Reading cold_step(std::int64_t batch, double seconds) {
  return {.cold = true, .batch = batch, .seconds = seconds};
}

TEST(ColdSizesTest, LearnsWhatANewSizeCostsFromTheNextStepWithIt) {
  ColdSizes sizes;
  EXPECT_FALSE(sizes.any());
  sizes.observe(cold_step(8, 30.0));  // the worker's first step loads libraries, too
  sizes.observe(warm_step(8, 1.0));
  EXPECT_TRUE(sizes.any());
  EXPECT_EQ(sizes.seconds(9), 0.0);
  sizes.observe(cold_step(9, 1.5));
  EXPECT_EQ(sizes.seconds(10), 0.0);  // not known yet
  sizes.observe(warm_step(9, 1.125));
  EXPECT_EQ(sizes.seconds(10), 0.375);
  EXPECT_EQ(sizes.seconds(9), 0.0);
  EXPECT_EQ(sizes.seconds(8), 0.0);
  EXPECT_EQ(sizes.seconds(0), 0.0);
  sizes.observe(cold_step(10, 1.5));
  sizes.observe(warm_step(8, 1.0));  // of another size: says nothing
  EXPECT_EQ(sizes.seconds(11), 0.375);
  sizes.observe(cold_step(11, 1.5));
  sizes.observe(warm_step(11, 1.375));
  EXPECT_EQ(sizes.seconds(12), 0.25);  // the mean of 0.375 and 0.125
}

TEST(ColdSizesTest, AStepThatIsNotColdAddsNoSize) {
  ColdSizes sizes;
  sizes.observe(warm_step(8, 1.0));
  EXPECT_FALSE(sizes.any());
}

// A GPU beside a CPU with a fiftieth of its speed: what its first step took, libraries that are loaded included, is
// enough to know that equal shares are wrong.
TEST(ColdSizesTest, AWorkerWhoseFirstStepWasColdIsAtLeastThatFast) {
  Controller controller({.workers = {{.id = 0, .kind = "cuda"}, {.id = 1, .kind = "cpu"}}, .global_batch = 512}, {});
  controller.observe(
      {.step = 0,
       .workers = {
           {.worker = 0, .batch = 256, .seconds = 0.85, .cold = true}, {.worker = 1, .batch = 256, .seconds = 5.0}}});
  EXPECT_GT(controller.decision().batch_sizes[0], 400);
}

TEST(ColdSizesTest, ARestoredPolicyGoesOnAlike) {
  Roster roster{.workers = {{.id = 0, .kind = "cuda"}, {.id = 1, .kind = "cuda"}}, .global_batch = 256};
  const auto observed = [](Controller& controller, std::int64_t step) {
    StepTelemetry telemetry{.step = step, .workers = {}};
    for (std::size_t k = 0; k < 2; ++k) {
      const std::int64_t batch = controller.decision().batch_sizes[k];
      Random random({static_cast<std::uint64_t>(step), k});
      const double seconds = (static_cast<double>(batch) + 20.0) / (k == 0 ? 3.0 : 1.0);
      const bool is_cold = controller.decision().changed || step == 0;
      telemetry.workers.push_back(
          {.worker = k,
           .batch = batch,
           .seconds = seconds * (1.0 + 0.02 * random.normal()) + (is_cold ? 40.0 : 0.0),
           .cold = is_cold});
    }
    return controller.observe(telemetry).batch_sizes;
  };
  Controller whole(roster, {});
  for (std::int64_t step = 0; step < 100; ++step) {
    Controller again(roster, {});
    again.restore(whole.state());
    EXPECT_EQ(observed(again, step), observed(whole, step)) << step;
  }
}

}  // namespace
}  // namespace isochron
