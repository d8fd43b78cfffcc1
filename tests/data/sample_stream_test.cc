#include "isochron/data/sample_stream.h"

#include <map>
#include <memory>
#include <vector>

#include "support.h"
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"
#include "isochron/data/prefetcher.h"
#include "isochron/data/synthetic_images.h"

namespace isochron::data {
namespace {

std::shared_ptr<const Dataset> images(std::int64_t samples) {
  return synthetic_images({.samples = samples, .height = 4, .width = 4});
}

Bytes fetch(const SampleStream& stream, std::int64_t running, std::int64_t* label = nullptr) {
  Bytes out(static_cast<std::size_t>(stream.sample_bytes()));
  const std::int64_t read = stream.fetch(running, out);
  if (label != nullptr) {
    *label = read;
  }
  return out;
}

TEST(SampleStreamTest, FollowsThePermutationOfEachEpoch) {
  const auto dataset = images(10);
  const SamplerOptions order{.dataset_size = 10, .global_batch = 4, .seed = 3};
  const SampleStream stream(dataset, order, std::nullopt);
  EXPECT_EQ(stream.sample_bytes(), 16);
  for (std::int64_t running = 0; running < 30; ++running) {
    const std::int64_t index = epoch_permutation(10, 3, running / 10).index_at(running % 10);
    std::int64_t expected_label = 0;
    std::int64_t label = 0;
    EXPECT_EQ(fetch(stream, running, &label), sample_of(*dataset, index, &expected_label));
    EXPECT_EQ(label, expected_label);
  }
}

TEST(SampleStreamTest, AugmentsByEpochAndPosition) {
  const auto dataset = images(10);
  const SamplerOptions order{.dataset_size = 10, .global_batch = 4, .seed = 3};
  const Augment augment(dataset->shape(), {.flip = true, .crop_padding = 2, .seed = 8});
  const SampleStream stream(dataset, order, augment);
  for (std::int64_t running = 0; running < 20; ++running) {
    const std::int64_t index = epoch_permutation(10, 3, running / 10).index_at(running % 10);
    std::vector<float> expected(16);
    augment.render(augment.view_at(running / 10, running % 10), sample_of(*dataset, index), expected);
    std::vector<float> fetched(16);
    stream.fetch(running, std::as_writable_bytes(std::span(fetched)));
    EXPECT_EQ(fetched, expected) << running;
  }
}

TEST(SampleStreamTest, SkipsWhatTheSamplerDrops) {
  const auto dataset = images(10);
  const SamplerOptions order{.dataset_size = 10, .global_batch = 4, .seed = 3, .last_batch = LastBatch::kDrop};
  const SampleStream stream(dataset, order, std::nullopt);
  // Two steps of four an epoch: running position 9 is position 1 of epoch 1.
  EXPECT_EQ(fetch(stream, 9), sample_of(*dataset, epoch_permutation(10, 3, 1).index_at(1)));
  EXPECT_EQ(stream.running({.epoch = 2, .position = 4}, {5, 7}), (Interval{21, 23}));
}

TEST(SampleStreamTest, ForeseesTheSlicesBeyondTheEpoch) {
  const SamplerOptions order{.dataset_size = 10, .global_batch = 4};
  const SampleStream stream(images(10), order, std::nullopt);
  Sampler sampler(order);
  sampler.advance();
  // Steps take 4, 4, 2 of an epoch's ten; the last two are dealt 1 and 1 to shares of 1 and 3 (0.5 and 1.5, ties to the
  // first).
  const std::vector<std::int64_t> split = {1, 3};
  EXPECT_EQ(stream.coming_slices(sampler, split, 1, 3), (std::vector<Interval>{{5, 8}, {9, 10}, {11, 14}}));
}

TEST(SampleStreamTest, RefusesAnotherSize) {
  EXPECT_EQ(
      refusal([] { SampleStream(images(10), {.dataset_size = 9, .global_batch = 4}, std::nullopt); }),
      "dataset size is 9; permitted: the dataset's 10");
}

/// What the workers of a step get, one after the other.
Bytes take_step(
    const std::vector<std::unique_ptr<Prefetcher>>& workers,
    const SampleStream& stream,
    const Sampler& sampler,
    const std::vector<std::int64_t>& split) {
  Bytes step;
  const std::vector<Interval> slices = sampler.slices(split);
  for (std::size_t k = 0; k < workers.size(); ++k) {
    workers[k]->plan(stream.coming_slices(sampler, split, k, 3));
    const Interval slice = stream.running(sampler.state(), slices[k]);
    Bytes samples(static_cast<std::size_t>(slice.size() * stream.sample_bytes()));
    std::vector<std::int64_t> labels(static_cast<std::size_t>(slice.size()));
    workers[k]->take(slice, samples, labels);
    step = step + samples;
  }
  return step;
}

// The guarantee: whatever the number of workers and their batch sizes, a step is the same samples, augmented alike.
RC_GTEST_PROP(SampleStreamTest, StepsAreTheSameForAnyNumberOfWorkers, (std::uint64_t seed)) {
  Random random({seed});
  const auto dataset = images(60);
  const SamplerOptions order{.dataset_size = 60, .global_batch = 16, .seed = seed};
  const SampleStream stream(dataset, order, Augment(dataset->shape(), {.flip = true, .crop_padding = 2, .seed = seed}));
  std::vector<std::unique_ptr<Prefetcher>> workers;
  for (std::uint64_t k = 0; k <= random.below(4); ++k) {
    workers.push_back(std::make_unique<Prefetcher>(
        [&](std::int64_t position, std::span<std::byte> out) { return stream.fetch(position, out); },
        stream.sample_bytes(),
        PrefetchOptions{.threads = 1, .capacity = 24}));
  }
  Sampler sampler(order);
  for (int n = 0; n < 10; ++n) {
    std::vector<std::int64_t> split(workers.size());
    for (int i = 0; i < 16; ++i) {
      ++split[random.below(split.size())];
    }
    const std::int64_t first = sampler.state().epoch * 60 + sampler.state().position;
    Bytes expected;
    for (std::int64_t position = first; position < first + sampler.step_size(); ++position) {
      expected = expected + fetch(stream, position);
    }
    RC_ASSERT(take_step(workers, stream, sampler, split) == expected);
    sampler.advance();
  }
}

}  // namespace
}  // namespace isochron::data
