// The samples of a worker's slices as tensors on its device, prepared ahead by background threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <c10/core/Device.h>

#include "isochron/core/sample/sampler.h"
#include "isochron/data/dataset.h"
#include "isochron/data/prefetcher.h"
#include "isochron/data/sample_stream.h"
#include "isochron/engine/loader.h"

namespace isochron {

class BatchSource {
 public:
  // Throws std::invalid_argument like the parts it is made of.
  BatchSource(
      std::shared_ptr<const data::Dataset> dataset,
      const SamplerOptions& order,
      const LoaderOptions& options,
      data::PrefetchOptions prefetch,
      c10::Device device);

  // The samples that worker number `worker` takes in the step `sampler` is at; those of the next step are begun. An
  // empty slice gives two samples all the same (see Batch).
  Batch take(const Sampler& sampler, std::span<const std::int64_t> batch_sizes, std::size_t worker);
  // The samples at those positions of an epoch.
  Batch take(const SamplerState& epoch, const Interval& positions);
  // The same for positions that need not follow each other, in their order, of which there is one or more; those at
  // `coming`, likely the next step's, are begun.
  struct Place {
    std::int64_t epoch = 0;
    std::vector<std::int64_t> positions;
  };
  Batch take(const Place& place, const Place& coming);

 private:
  Batch fetch(std::span<const Interval> slices);
  Batch as_tensors(at::Tensor samples, const at::Tensor& labels) const;
  // What lies at those running positions, of which `samples` has the tokens, filled up.
  Batch as_documents(const at::Tensor& samples, std::span<const Interval> slices) const;

  std::shared_ptr<const data::Dataset> dataset_;
  data::SampleStream stream_;
  data::Prefetcher prefetcher_;
  Collation collation_;
  c10::Device device_;
};

}  // namespace isochron
