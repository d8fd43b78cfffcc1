#include "isochron/core/sample/sampler.h"

#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "isochron/core/error.h"

namespace isochron {
namespace {

using ::testing::ElementsAre;

using Batches = std::vector<std::int64_t>;

TEST(SamplerTest, GivesEachWorkerItsSliceInTheOrderOfTheRoster) {
  Sampler sampler({.dataset_size = 100, .global_batch = 16});
  EXPECT_THAT(sampler.slices(Batches{4, 0, 12}), ElementsAre(Interval{0, 4}, Interval{4, 4}, Interval{4, 16}));
  sampler.advance();
  EXPECT_THAT(sampler.slices(Batches{10, 6}), ElementsAre(Interval{16, 26}, Interval{26, 32}));
}

TEST(SamplerTest, KeepsAShortLastStep) {
  // 100 = 6 x 16 + 4.
  Sampler sampler({.dataset_size = 100, .global_batch = 16});
  EXPECT_EQ(sampler.steps_per_epoch(), 7);
  EXPECT_EQ(sampler.samples_per_epoch(), 100);
  for (int step = 0; step < 6; ++step) {
    EXPECT_EQ(sampler.step_size(), 16);
    sampler.advance();
  }
  EXPECT_EQ(sampler.step_size(), 4);
  // 4 samples by 4 : 12 are 1 : 3.
  EXPECT_THAT(sampler.slices(Batches{4, 12}), ElementsAre(Interval{96, 97}, Interval{97, 100}));
  sampler.advance();
  EXPECT_EQ(sampler.state(), (SamplerState{.seed = 0, .epoch = 1, .position = 0}));
}

TEST(SamplerTest, DropsAShortLastStep) {
  Sampler sampler({.dataset_size = 100, .global_batch = 16, .last_batch = LastBatch::kDrop});
  EXPECT_EQ(sampler.steps_per_epoch(), 6);
  EXPECT_EQ(sampler.samples_per_epoch(), 96);
  for (int step = 0; step < 6; ++step) {
    EXPECT_EQ(sampler.step_size(), 16);
    sampler.advance();
  }
  EXPECT_EQ(sampler.state().epoch, 1);
  EXPECT_EQ(sampler.state().position, 0);
}

TEST(SamplerTest, HasNoShortStepWhereTheBatchDividesTheDataset) {
  for (const LastBatch last : {LastBatch::kKeep, LastBatch::kDrop}) {
    const Sampler sampler({.dataset_size = 96, .global_batch = 16, .last_batch = last});
    EXPECT_EQ(sampler.steps_per_epoch(), 6);
    EXPECT_EQ(sampler.samples_per_epoch(), 96);
  }
}

TEST(SamplerTest, TakesADatasetSmallerThanTheBatchInOneStep) {
  Sampler sampler({.dataset_size = 3, .global_batch = 16});
  EXPECT_EQ(sampler.step_size(), 3);
  sampler.advance();
  EXPECT_EQ(sampler.state().epoch, 1);
}

TEST(SamplerTest, ShufflesEveryEpochAnew) {
  Sampler sampler({.dataset_size = 1000, .global_batch = 1000, .seed = 3});
  const auto order = [&] {
    std::vector<std::int64_t> indices(1000);
    for (std::size_t i = 0; i < 1000; ++i) {
      indices[i] = sampler.sample_at(static_cast<std::int64_t>(i));
    }
    return indices;
  };
  const auto first = order();
  sampler.advance();
  EXPECT_NE(order(), first);
  sampler.restore({.seed = 3, .epoch = 0, .position = 0});
  EXPECT_EQ(order(), first);
  sampler.restore({.seed = 4, .epoch = 0, .position = 0});
  EXPECT_NE(order(), first);
}

TEST(SamplerTest, GivesTheSameSamplesOnEveryPlatform) {
  Sampler sampler({.dataset_size = 60'000, .global_batch = 128, .seed = 1});
  const auto five = [&] {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < 5; ++i) {
      indices.push_back(sampler.sample_at(sampler.state().position + i));
    }
    return indices;
  };
  EXPECT_THAT(five(), ElementsAre(16140, 50789, 12386, 50164, 49132));
  sampler.restore({.seed = 1, .epoch = 9, .position = 1280});
  EXPECT_THAT(five(), ElementsAre(3575, 58834, 24833, 37853, 29807));
}

TEST(SamplerTest, CostsTheSameMemoryForABillionSamplesAsForTen) {
  // Nothing is on the heap: the object, trivially copyable, is all there is.
  static_assert(std::is_trivially_copyable_v<Sampler>);
  Sampler sampler({.dataset_size = 1'000'000'000, .global_batch = 1'000'000, .seed = 5});
  sampler.restore({.seed = 5, .epoch = 1'000'000, .position = 999'000'000});
  EXPECT_EQ(sampler.slices(Batches{400'000, 600'000}).back(), (Interval{999'400'000, 1'000'000'000}));
  EXPECT_LT(sampler.sample_at(999'999'999), 1'000'000'000);
  sampler.advance();
  EXPECT_EQ(sampler.state().epoch, 1'000'001);
}

TEST(SamplerTest, ContinuesFromItsStateWithAnotherNumberOfWorkers) {
  Sampler original({.dataset_size = 1000, .global_batch = 64, .seed = ~std::uint64_t{0}});
  for (int step = 0; step < 20; ++step) {
    original.advance();
  }
  SamplerState state = original.state();
  SamplerState loaded;
  restore_state(loaded, State::parse(save_state(state).serialize()));
  EXPECT_EQ(loaded, state);
  Sampler copy({.dataset_size = 1000, .global_batch = 64});
  copy.restore(loaded);
  EXPECT_EQ(copy.slices(Batches{64}).front().first, original.slices(Batches{32, 32}).front().first);
  EXPECT_EQ(copy.slices(Batches{64}).back().last, original.slices(Batches{32, 32}).back().last);
  EXPECT_EQ(copy.sample_at(17), original.sample_at(17));
}

TEST(SamplerTest, StartsTheNextEpochWhereARestoredPositionIsAtTheEnd) {
  Sampler keep({.dataset_size = 100, .global_batch = 16});
  keep.restore({.epoch = 2, .position = 100});
  EXPECT_EQ(keep.state().epoch, 3);
  Sampler drop({.dataset_size = 100, .global_batch = 16, .last_batch = LastBatch::kDrop});
  drop.restore({.epoch = 2, .position = 85});
  EXPECT_EQ(drop.state().epoch, 3);
  drop.restore({.epoch = 2, .position = 84});
  EXPECT_EQ(drop.state().epoch, 2);
}

std::string message_of(const SamplerOptions& options) {
  try {
    options.validate();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(SamplerTest, NamesTheFieldTheValueAndWhatIsPermitted) {
  EXPECT_EQ(message_of({.dataset_size = 0, .global_batch = 1}), "dataset size is 0; permitted: 1 to 9007199254740992");
  EXPECT_EQ(message_of({.dataset_size = 10, .global_batch = 0}), "global batch is 0; permitted: 1 to 2147483647");
  EXPECT_EQ(
      message_of({.dataset_size = 10, .global_batch = 11, .last_batch = LastBatch::kDrop}),
      "global batch is 11; permitted: at most the dataset's 10 samples, since a partial batch is dropped");
  Sampler sampler({.dataset_size = 10, .global_batch = 4});
  EXPECT_THROW(sampler.restore({.position = 11}), std::invalid_argument);
  EXPECT_THROW(sampler.restore({.epoch = -1}), std::invalid_argument);
  EXPECT_THROW((void)sampler.slices(Batches{2, 1}), InvariantError);
  SamplerState state;
  State wrong = save_state(state);
  wrong.words.at("seed") = "12x";
  EXPECT_THROW(restore_state(state, wrong), std::invalid_argument);
}

TEST(DealTest, RoundsByLargestRemainder) {
  // 10 by 17 : 17 : 16 : 81 of 131: 1.30, 1.30, 1.22, 6.18, so the tenth goes to the first of the 1.30s.
  EXPECT_THAT(deal(10, Batches{17, 17, 16, 81}), ElementsAre(2, 1, 1, 6));
  EXPECT_THAT(deal(0, Batches{3, 4}), ElementsAre(0, 0));
  EXPECT_THAT(deal(7, Batches{3, 4}), ElementsAre(3, 4));
}

RC_GTEST_PROP(DealTest, AddsUpExactlyAndStaysWithinOneOfTheShare, ()) {
  const auto split = *rc::gen::nonEmpty(rc::gen::container<Batches>(rc::gen::inRange<std::int64_t>(0, 5000)));
  const std::int64_t whole = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  RC_PRE(whole > 0);
  const auto samples = *rc::gen::inRange<std::int64_t>(0, whole + 1);
  const Batches dealt = deal(samples, split);
  RC_ASSERT(std::accumulate(dealt.begin(), dealt.end(), std::int64_t{0}) == samples);
  for (std::size_t i = 0; i < split.size(); ++i) {
    RC_ASSERT(dealt[i] >= 0 && dealt[i] <= split[i]);
    RC_ASSERT(std::abs(dealt[i] * whole - split[i] * samples) < whole);
  }
}

}  // namespace
}  // namespace isochron
