// The samples of a worker's slices as tensors on its device, prepared ahead by background threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

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

 private:
  Batch fetch(const Interval& slice);
  Batch as_tensors(at::Tensor samples, const at::Tensor& labels) const;

  std::shared_ptr<const data::Dataset> dataset_;
  data::SampleStream stream_;
  data::Prefetcher prefetcher_;
  c10::Device device_;
};

}  // namespace isochron
