// The samples of a training run in the sampler's order, epoch after epoch, ready for the model.
//
// A sample is addressed by its running position: epoch * samples_per_epoch + position, which goes on through the ends
// of epochs. So prefetching does too. fetch() is a pure function of it: permutation, read, augmentation. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "isochron/core/sample/sampler.h"
#include "isochron/data/augment.h"
#include "isochron/data/dataset.h"

namespace isochron::data {

class SampleStream {
 public:
  /// With `augment` samples are floats, without they are as stored. Throws std::invalid_argument unless the sampler's
  /// dataset size is the dataset's.
  SampleStream(std::shared_ptr<const Dataset> dataset, const SamplerOptions& order, std::optional<Augment> augment);

  [[nodiscard]] std::int64_t sample_bytes() const;

  /// Its number in the dataset.
  [[nodiscard]] std::int64_t index_at(std::int64_t running_position) const;

  /// Writes the sample to `out`, which is sample_bytes() long and aligned for its elements; returns its label.
  std::int64_t fetch(std::int64_t running_position, std::span<std::byte> out) const;

  /// Positions of the epoch that `state` is in, as running ones.
  [[nodiscard]] Interval running(const SamplerState& state, const Interval& positions) const;

  /// The slices, as running positions, that worker number `worker` takes in the coming steps, the first of them the one
  /// that `sampler` is at, if the batch sizes stay as they are.
  [[nodiscard]] std::vector<Interval> coming_slices(
      Sampler sampler, std::span<const std::int64_t> batch_sizes, std::size_t worker, std::int64_t steps) const;

 private:
  std::shared_ptr<const Dataset> dataset_;
  SamplerOptions order_;
  std::int64_t samples_per_epoch_;
  std::optional<Augment> augment_;
};

}  // namespace isochron::data
