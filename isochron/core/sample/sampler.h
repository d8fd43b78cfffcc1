// Which samples each worker takes in the coming step.
//
// An epoch is a keyed permutation of the dataset; a step takes the next B positions of it, and the workers divide them
// in the roster's order by their batch sizes. Position and split are all that matters, so the number of workers may
// change from step to step and over a restart. A step counts when advance() is called: one that failed is simply dealt
// again. O(1) memory whatever the size of the dataset; O(1) per sample, O(K log K) per step. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "isochron/core/names.h"
#include "isochron/core/sample/interval.h"
#include "isochron/core/sample/permutation.h"
#include "isochron/core/state.h"

namespace isochron {

enum class LastBatch : std::uint8_t {
  kKeep,  // the last step of an epoch takes what is left; weights are b_k over the samples of that step
  kDrop,  // what does not fill a step is left out; which samples those are differs from epoch to epoch
};

inline constexpr Names<LastBatch, 2> kLastBatchNames{{{LastBatch::kKeep, "keep"}, {LastBatch::kDrop, "drop"}}};

inline std::string_view to_string(LastBatch last_batch) {
  return name_of(kLastBatchNames, last_batch);
}

struct SamplerOptions {
  std::int64_t dataset_size = 0;  // 1 .. 2^53
  std::int64_t global_batch = 0;  // 1 .. 2^31 - 1; at most dataset_size with kDrop
  std::uint64_t seed = 0;
  LastBatch last_batch = LastBatch::kKeep;

  /// Throws std::invalid_argument naming the field, the value and what is permitted.
  void validate() const;
};

/// All that a checkpoint needs.
struct SamplerState {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // of the coming step's first sample

  bool operator==(const SamplerState&) const = default;
  void exchange(StateExchange& state);
};

/// The order of the samples in an epoch.
Permutation epoch_permutation(std::int64_t dataset_size, std::uint64_t seed, std::int64_t epoch);

/// `samples` in proportion to `split`, rounded by largest remainder (ties: the first); they add up to `samples`
/// exactly, and nobody gets more than `split` gives, if the split as a whole is at least `samples`.
std::vector<std::int64_t> deal(std::int64_t samples, std::span<const std::int64_t> split);

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  [[nodiscard]] const SamplerState& state() const { return state_; }
  /// Throws std::invalid_argument on an epoch or a position out of range.
  void restore(const SamplerState& state);

  [[nodiscard]] std::int64_t steps_per_epoch() const;
  [[nodiscard]] std::int64_t samples_per_epoch() const;  // dataset_size, less what is dropped

  /// Samples of the coming step: B, or fewer in a last step that is kept.
  [[nodiscard]] std::int64_t step_size() const;
  /// The positions each worker takes; `batch_sizes` add up to B. A short step is dealt in proportion to them.
  [[nodiscard]] std::vector<Interval> slices(std::span<const std::int64_t> batch_sizes) const;
  /// The sample at a position of the present epoch, 0 .. dataset_size - 1.
  [[nodiscard]] std::int64_t sample_at(std::int64_t position) const { return permutation_.index_at(position); }

  /// The step is done.
  void advance();

 private:
  void start_epoch_if_over();

  SamplerOptions options_;
  SamplerState state_;
  Permutation permutation_;
};

}  // namespace isochron
