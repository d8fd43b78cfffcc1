#include "isochron/core/sample/sampler.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

constexpr std::int64_t kMostBatch = std::numeric_limits<std::int32_t>::max();  // products of two must not overflow

SamplerOptions checked(const SamplerOptions& options) {
  options.validate();
  return options;
}

}  // namespace

void SamplerOptions::validate() const {
  require_between("dataset size", dataset_size, 1, kMostPositions);
  require_between("global batch", global_batch, 1, kMostBatch);
  require(
      last_batch == LastBatch::kKeep || global_batch <= dataset_size,
      "global batch",
      global_batch,
      "at most the dataset's " + std::to_string(dataset_size) + " samples, since a partial batch is dropped");
}

void SamplerState::exchange(StateExchange& state) {
  // As a word: a seed may be larger than a number field holds.
  std::string seed_word = std::to_string(seed);
  state.field("seed", seed_word);
  const char* const end = seed_word.data() + seed_word.size();
  if (const auto parsed = std::from_chars(seed_word.data(), end, seed); parsed.ec != std::errc{} || parsed.ptr != end) {
    throw std::invalid_argument("state field seed is '" + seed_word + "'; permitted: 0 to 2^64 - 1");
  }
  state.field("epoch", epoch);
  state.field("position", position);
}

Permutation epoch_permutation(std::int64_t dataset_size, std::uint64_t seed, std::int64_t epoch) {
  return {dataset_size, mix_key({seed, static_cast<std::uint64_t>(epoch)})};
}

std::vector<std::int64_t> deal(std::int64_t samples, std::span<const std::int64_t> split) {
  const std::int64_t whole = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  ISO_CHECK(
      whole >= 1 && whole <= kMostBatch && samples >= 0 && samples <= kMostBatch, "a split that cannot be dealt by");
  if (samples == whole) {
    return {split.begin(), split.end()};
  }
  std::vector<std::int64_t> dealt(split.size());
  std::vector<std::int64_t> remainders(split.size());
  for (std::size_t i = 0; i < split.size(); ++i) {
    dealt[i] = split[i] * samples / whole;
    remainders[i] = split[i] * samples % whole;
  }
  const std::int64_t left = samples - std::accumulate(dealt.begin(), dealt.end(), std::int64_t{0});
  std::vector<std::size_t> order(split.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (std::size_t i = 0; i < static_cast<std::size_t>(left); ++i) {
    ++dealt[order[i]];
  }
  return dealt;
}

Sampler::Sampler(const SamplerOptions& options)
    : options_(checked(options)),
      state_{.seed = options.seed},
      permutation_(epoch_permutation(options.dataset_size, options.seed, 0)) {
}

void Sampler::restore(const SamplerState& state) {
  require(state.epoch >= 0, "epoch", state.epoch, "0 or more");
  require(
      state.position >= 0 && state.position <= options_.dataset_size,
      "position",
      state.position,
      "0 to the dataset's " + std::to_string(options_.dataset_size) + " samples");
  state_ = state;
  permutation_ = epoch_permutation(options_.dataset_size, state.seed, state.epoch);
  start_epoch_if_over();
}

std::int64_t Sampler::steps_per_epoch() const {
  const std::int64_t full = options_.dataset_size / options_.global_batch;
  const bool partial = options_.dataset_size % options_.global_batch != 0;
  return options_.last_batch == LastBatch::kKeep && partial ? full + 1 : full;
}

std::int64_t Sampler::samples_per_epoch() const {
  return std::min(steps_per_epoch() * options_.global_batch, options_.dataset_size);
}

std::int64_t Sampler::step_size() const {
  return std::min(options_.global_batch, options_.dataset_size - state_.position);
}

std::vector<Interval> Sampler::slices(std::span<const std::int64_t> batch_sizes) const {
  const std::int64_t sum = std::accumulate(batch_sizes.begin(), batch_sizes.end(), std::int64_t{0});
  ISO_CHECK(sum == options_.global_batch, "the batch sizes add up to " + std::to_string(sum));
  std::vector<Interval> slices;
  slices.reserve(batch_sizes.size());
  std::int64_t first = state_.position;
  for (const std::int64_t size : deal(step_size(), batch_sizes)) {
    slices.push_back({.first = first, .last = first + size});
    first += size;
  }
  return slices;
}

void Sampler::advance() {
  state_.position += step_size();
  start_epoch_if_over();
}

void Sampler::start_epoch_if_over() {
  const std::int64_t left = options_.dataset_size - state_.position;
  if (left == 0 || (options_.last_batch == LastBatch::kDrop && left < options_.global_batch)) {
    ++state_.epoch;
    state_.position = 0;
    permutation_ = epoch_permutation(options_.dataset_size, state_.seed, state_.epoch);
  }
}

}  // namespace isochron
