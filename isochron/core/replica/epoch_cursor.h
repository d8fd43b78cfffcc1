// Where a job is in its data: epoch and position, who takes which positions of the coming step, and the ledger that
// proves that every position was used exactly once.
//
// The data is a dataset of known size, in the order of the sampler's permutation, or a stream, whose samples come in
// one order that is the same on all workers and whose end only the reader knows. O(1) memory in the number of samples.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "isochron/core/sample/ledger.h"
#include "isochron/core/sample/sampler.h"
#include "isochron/core/state.h"
#include "isochron/core/worker.h"

namespace isochron {

/// A cursor as a value.
struct DataPlace {
  std::int64_t dataset_size = 0;  // 0: a stream
  std::int64_t epoch = 0;
  std::int64_t position = 0;
  Ledger ledger{0};

  void exchange(StateExchange& state);
};

class EpochCursor {
 public:
  explicit EpochCursor(const SamplerOptions& options);
  /// A stream's dataset_size is 0.
  static EpochCursor of_stream(const SamplerOptions& options);

  [[nodiscard]] bool is_stream() const { return !sampler_; }
  [[nodiscard]] std::int64_t epoch() const { return sampler_ ? sampler_->state().epoch : epoch_; }
  [[nodiscard]] std::int64_t position() const { return sampler_ ? sampler_->state().position : position_; }
  [[nodiscard]] std::int64_t dataset_size() const { return options_.dataset_size; }
  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  /// Null of a stream.
  [[nodiscard]] const Sampler* sampler() const { return sampler_ ? &*sampler_ : nullptr; }

  /// Samples of the coming step of so many global batches, fewer at the end of an epoch. `from_stream` is what a stream
  /// has given, 1 to that; of a dataset 0.
  [[nodiscard]] std::int64_t step_size(std::int64_t from_stream, std::int64_t batches = 1) const;
  /// The positions that each worker takes of a step of `samples`; `batch_sizes` add up to B.
  [[nodiscard]] std::vector<Interval> slices(std::span<const std::int64_t> batch_sizes, std::int64_t samples) const;
  /// The same of a stream whose parts the workers read apart, when each has so many samples.
  [[nodiscard]] std::vector<Interval> slices_of(std::span<const std::int64_t> samples) const;

  /// The step is done: its samples are used. At the end of an epoch all of them must have been, once (InvariantError).
  void finish(std::span<const Interval> slices, std::span<const Worker> workers);
  /// The stream has ended, or nobody wants more of the dataset's epoch.
  void end_epoch();

  [[nodiscard]] DataPlace place() const;
  /// Throws std::invalid_argument, changing nothing, if the place is not one of this data.
  void go_to(const DataPlace& place);

 private:
  EpochCursor(const SamplerOptions& options, const std::optional<Sampler>& sampler);
  [[nodiscard]] std::int64_t epoch_size() const;

  SamplerOptions options_;
  std::optional<Sampler> sampler_;  // none of a stream, which has the two numbers below
  std::int64_t epoch_ = 0;
  std::int64_t position_ = 0;
  Ledger ledger_;
};

}  // namespace isochron
