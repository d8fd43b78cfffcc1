#include "isochron/worker/progress_line.h"

#include <sstream>

#include <gtest/gtest.h>

namespace isochron::worker {
namespace {

ShownStep record(std::int64_t step) {
  return {.step = step, .seconds = 0.5, .loss = 0.43214, .batch_sizes = {12, 88}};
}

TEST(ProgressLineTest, SaysHowFarAndHowFast) {
  // Step 119 is the 120th, the 20th of the second epoch; 180 are left at half a second each; 100 samples in each.
  EXPECT_EQ(
      progress_text(record(119), {.total_steps = 300, .steps_per_epoch = 100}, 0.5),
      "epoch 2/3  step 120/300  loss 0.4321  200 samples/s  batches 12 88  ETA 1:30");
  EXPECT_EQ(
      progress_text(record(0), {.total_steps = 20'001, .steps_per_epoch = 1000}, 0.5),
      "epoch 1/21  step 1/20001  loss 0.4321  200 samples/s  batches 12 88  ETA 2:46:40");
}

TEST(ProgressLineTest, CountsTheStepsOfARound) {
  // Steps 100 to 119 took 0.5 s each; a step has 2000 / 20 samples, and 180 are left.
  const ShownStep round{.step = 100, .steps = 20, .seconds = 10.0, .loss = 0.43214, .batch_sizes = {240, 1760}};
  EXPECT_EQ(
      progress_text(round, {.total_steps = 300, .steps_per_epoch = 100}, 0.5),
      "epoch 2/3  step 120/300  loss 0.4321  200 samples/s  batches 240 1760  ETA 1:30");
}

TEST(ProgressLineTest, LeavesOutTheBatchesOfALargeJob) {
  ShownStep large = record(0);
  large.batch_sizes.assign(9, 1);
  EXPECT_EQ(
      progress_text(large, {.total_steps = 1, .steps_per_epoch = 1}, 1.0),
      "epoch 1/1  step 1/1  loss 0.4321  9 samples/s  batches 1 1 1 1 1 1 1 1 ...  ETA 0:00");
}

TEST(ProgressLineTest, RewritesItsLineAndMakesWayForOthers) {
  std::ostringstream stream;
  ProgressLine progress(stream, ProgressStyle::kLine, {.total_steps = 1, .steps_per_epoch = 1});
  progress.show(record(0));
  progress.say("evaluated");
  progress.finish();
  EXPECT_EQ(
      stream.str(), "\repoch 1/1  step 1/1  loss 0.4321  200 samples/s  batches 12 88  ETA 0:00\x1b[K\nevaluated\n");
}

TEST(ProgressLineTest, SaysOnlyNowAndThenWhatNobodyRewrites) {
  std::ostringstream stream;
  ProgressLine plain(stream, ProgressStyle::kPlain, {.total_steps = 3, .steps_per_epoch = 3});
  plain.show(record(0));
  plain.show(record(1));
  EXPECT_EQ(stream.str(), "");
  plain.show(record(2));
  EXPECT_EQ(stream.str(), "epoch 1/1  step 3/3  loss 0.4321  200 samples/s  batches 12 88  ETA 0:00\n");
  ProgressLine off(stream, ProgressStyle::kOff, {.total_steps = 1, .steps_per_epoch = 1});
  stream.str("");
  off.show(record(0));
  EXPECT_EQ(stream.str(), "");
}

}  // namespace
}  // namespace isochron::worker
