#include "isochron/view/timeline.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

namespace isochron::view {
namespace {

/// Step n takes a second; its loss is `loss`.
Bin bin_of(std::int64_t step, double loss, std::size_t workers = 1) {
  Bin bin{
      .first_step = step,
      .last_step = step,
      .start = static_cast<double>(step),
      .end = static_cast<double>(step + 1),
      .samples = 10.0,
      .cells = std::vector<Cell>(workers)};
  bin.loss.add(loss);
  bin.seconds.add(1.0);
  for (Cell& cell : bin.cells) {
    cell.batch.add(10.0);
  }
  return bin;
}

/// A loss that no neighbour has, now and then far out.
double loss_at(std::int64_t step) {
  return step % 997 == 500 ? 1000.0 + static_cast<double>(step) : std::sin(static_cast<double>(step));
}

Timeline timeline_of(std::int64_t steps, std::size_t cells, std::size_t workers = 1) {
  Timeline timeline(cells);
  for (std::int64_t step = 0; step < steps; ++step) {
    timeline.add(bin_of(step, loss_at(step), workers));
  }
  return timeline;
}

/// The steps that have a bin of their own.
std::vector<std::int64_t> exact_steps(const Timeline& timeline) {
  std::vector<std::int64_t> steps;
  for (const Bin* const bin : timeline.bins()) {
    if (bin->records == 1) {
      steps.push_back(bin->first_step);
    }
  }
  return steps;
}

bool contains(const std::vector<std::int64_t>& steps, std::int64_t step) {
  return std::ranges::find(steps, step) != steps.end();
}

TEST(TimelineTest, KeepsShortRunsExactly) {
  const Timeline timeline = timeline_of(1000, 1000);
  EXPECT_EQ(timeline.width(), 1);
  EXPECT_EQ(exact_steps(timeline).size(), 1000U);
}

TEST(TimelineTest, CoversLongRunsOnceInBoundedBins) {
  for (const std::int64_t steps : {129, 1000, 54321}) {
    const Timeline timeline = timeline_of(steps, 512);
    EXPECT_LE(timeline.bins().size(), 512U);
    EXPECT_GE(timeline.bins().size(), std::min<std::size_t>(static_cast<std::size_t>(steps), 192));
    std::int64_t next = 0;
    for (const Bin* const bin : timeline.bins()) {
      EXPECT_EQ(bin->ordinal, next);
      EXPECT_EQ(bin->first_step, next);
      next += bin->records;
      EXPECT_EQ(bin->last_step, next - 1);
      EXPECT_EQ(bin->start, static_cast<double>(bin->first_step));
      EXPECT_EQ(bin->end, static_cast<double>(next));
      EXPECT_EQ(bin->samples, 10.0 * static_cast<double>(bin->records));
      EXPECT_EQ(bin->cells.at(0).batch.count(), bin->records);
    }
    EXPECT_EQ(next, steps);
  }
}

TEST(TimelineTest, KeepsTheSmallestAndTheLargestOfEveryBin) {
  const Timeline timeline = timeline_of(20000, 512);
  for (const Bin* const bin : timeline.bins()) {
    double low = loss_at(bin->first_step);
    double high = low;
    double sum = 0.0;
    for (std::int64_t step = bin->first_step; step <= bin->last_step; ++step) {
      low = std::min(low, loss_at(step));
      high = std::max(high, loss_at(step));
      sum += loss_at(step);
    }
    EXPECT_EQ(bin->loss.low(), low);
    EXPECT_EQ(bin->loss.high(), high);
    EXPECT_NEAR(bin->loss.mean(), sum / static_cast<double>(bin->records), 1e-9 * std::abs(high));
  }
}

TEST(TimelineTest, KeepsTheFirstAndTheLastStepsExactly) {
  // 512 bins: the first 512/16 = 32 and the last 512/8 = 64 stay single.
  const std::vector<std::int64_t> exact = exact_steps(timeline_of(20000, 512));
  for (const std::int64_t step : {0, 31, 20000 - 64, 20000 - 1}) {
    EXPECT_TRUE(contains(exact, step)) << step;
  }
  EXPECT_FALSE(contains(exact, 1000));
}

TEST(TimelineTest, KeepsWhatIsPinnedExactly) {
  Timeline timeline(512);  // 512/32 = 16 on either side of a pin
  for (std::int64_t step = 0; step < 20000; ++step) {
    if (step == 5000) {
      timeline.pin_here();
    }
    timeline.add(bin_of(step, 0.0));
  }
  const std::vector<std::int64_t> exact = exact_steps(timeline);
  for (std::int64_t step = 5000 - 16; step < 5000 + 16; ++step) {
    EXPECT_TRUE(contains(exact, step)) << step;
  }
  EXPECT_FALSE(contains(exact, 4900));
}

TEST(TimelineTest, LetsTheOldestPinsGoWhenThereAreTooMany) {
  Timeline timeline(512);
  for (std::int64_t step = 0; step < 20000; ++step) {
    if (step % 100 == 0) {
      timeline.pin_here();
    }
    timeline.add(bin_of(step, 0.0));
  }
  EXPECT_LE(timeline.bins().size(), 512U);
  EXPECT_TRUE(contains(exact_steps(timeline), 0));
  EXPECT_FALSE(contains(exact_steps(timeline), 5000));
  EXPECT_TRUE(contains(exact_steps(timeline), 19800));
  // Of 512 bins 64 are for the last steps and up to 128 for pins; at 128 records each, 20000 take 157 of the rest.
  EXPECT_LE(timeline.width(), 128);
}

TEST(TimelineTest, HasFewerBinsForMoreWorkers) {
  EXPECT_LE(timeline_of(600, 20000, 100).bins().size(), 200U);
  // Room for 128 at least, whatever the number of workers; half of it is what remains when bins become one.
  EXPECT_GE(timeline_of(300, 1000, 100).bins().size(), 64U);
}

TEST(TimelineTest, ForgetsWhatWasRolledBack) {
  Timeline timeline = timeline_of(1000, 512);
  timeline.forget_from(990);
  EXPECT_EQ(timeline.bins().back()->last_step, 989);
  timeline.add(bin_of(990, 7.0));
  EXPECT_EQ(timeline.bins().back()->first_step, 990);
  timeline.forget_from(100);  // in the middle of bins that were summed up
  EXPECT_EQ(timeline.bins().back()->last_step, 99);
  timeline.forget_from(0);
  EXPECT_TRUE(timeline.bins().empty());
}

}  // namespace
}  // namespace isochron::view
