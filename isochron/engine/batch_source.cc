#include "isochron/engine/batch_source.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

namespace isochron {
namespace {

using data::Element;

constexpr std::int64_t kMostPrefetchBytes = std::int64_t{256} << 20;
constexpr std::int64_t kStandIns = 2;    // BatchNorm1d refuses one
constexpr std::int64_t kStepsAhead = 2;  // the one that is taken, and the next

bool is_image(const data::SampleShape& shape) {
  return shape.element == Element::kUint8 && shape.sizes.size() == 3;
}

std::optional<data::Augment> augmentation(
    const data::Dataset& dataset, const std::optional<data::AugmentOptions>& options, std::uint64_t seed) {
  if (!is_image(dataset.shape())) {
    return std::nullopt;
  }
  data::AugmentOptions chosen = options.value_or(data::AugmentOptions{});
  chosen.seed = seed;
  return data::Augment(dataset.shape(), chosen);
}

data::PrefetchOptions with_capacity(data::PrefetchOptions options, std::int64_t global_batch, std::int64_t bytes) {
  if (options.capacity == 0) {
    options.capacity = std::clamp(kMostPrefetchBytes / bytes, std::int64_t{1}, kStepsAhead * global_batch);
  }
  return options;
}

at::ScalarType stored_type(const data::SampleShape& shape) {
  switch (shape.element) {
    case Element::kUint8:
      return is_image(shape) ? at::kFloat : at::kByte;  // images come rendered
    case Element::kUint16:
      return at::kUInt16;
    case Element::kUint32:
      return at::kUInt32;
  }
  return at::kByte;
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace

BatchSource::BatchSource(
    std::shared_ptr<const data::Dataset> dataset,
    const SamplerOptions& order,
    const LoaderOptions& options,
    data::PrefetchOptions prefetch,
    c10::Device device)
    : dataset_(std::move(dataset)),
      stream_(dataset_, order, augmentation(*dataset_, options.augment, order.seed)),
      prefetcher_(
          [this](std::int64_t position, std::span<std::byte> out) { return stream_.fetch(position, out); },
          stream_.sample_bytes(),
          with_capacity(prefetch, order.global_batch, stream_.sample_bytes())),
      collation_(options.collation),
      device_(device) {
}

Batch BatchSource::take(const Sampler& sampler, std::span<const std::int64_t> batch_sizes, std::size_t worker) {
  std::vector<Interval> slices = stream_.coming_slices(sampler, batch_sizes, worker, kStepsAhead);
  if (slices.front().size() == 0) {
    slices.front() = stream_.running(sampler.state(), {sampler.state().position, sampler.state().position + kStandIns});
  }
  prefetcher_.plan(slices);
  return fetch(std::span(slices).first(1));
}

Batch BatchSource::take(const SamplerState& epoch, const Interval& positions) {
  const Interval slice = stream_.running(epoch, positions);
  prefetcher_.plan(std::array{slice});
  return fetch(std::array{slice});
}

Batch BatchSource::take(const Place& place, const Place& coming) {
  std::vector<Interval> slices;
  std::size_t now = 0;
  for (const Place* const one : {&place, &coming}) {
    now = slices.size();
    const SamplerState epoch{.epoch = one->epoch};
    for (const std::int64_t position : one->positions) {
      const Interval next = stream_.running(epoch, {.first = position, .last = position + 1});
      if (slices.size() > now && slices.back().last == next.first) {
        slices.back().last = next.last;
      } else {
        slices.push_back(next);
      }
    }
  }
  prefetcher_.plan(slices);
  return fetch(std::span(slices).first(now));
}

Batch BatchSource::fetch(std::span<const Interval> slices) {
  std::int64_t count = 0;
  for (const Interval& slice : slices) {
    count += slice.size();
  }
  std::vector<std::int64_t> sizes{count};
  sizes.insert(sizes.end(), dataset_->shape().sizes.begin(), dataset_->shape().sizes.end());
  const auto options = at::TensorOptions().pinned_memory(device_.is_cuda());
  const at::Tensor samples = at::empty(sizes, options.dtype(stored_type(dataset_->shape())));
  const at::Tensor labels = at::empty({sizes.front()}, options.dtype(at::kLong));
  const std::span<std::int64_t> label_span{labels.mutable_data_ptr<std::int64_t>(), static_cast<std::size_t>(sizes[0])};
  std::size_t done = 0;
  for (const Interval& slice : slices) {
    const auto size = static_cast<std::size_t>(slice.size());
    const auto bytes = static_cast<std::size_t>(stream_.sample_bytes());
    prefetcher_.take(slice, bytes_of(samples).subspan(done * bytes, size * bytes), label_span.subspan(done, size));
    done += size;
  }
  return dataset_->lengths().empty() ? as_tensors(samples, labels) : as_documents(samples, slices);
}

Batch BatchSource::as_documents(const at::Tensor& samples, std::span<const Interval> slices) const {
  const at::Tensor lengths = at::empty({samples.size(0), 1}, at::kLong);
  auto* next = lengths.mutable_data_ptr<std::int64_t>();
  for (const Interval& slice : slices) {
    for (std::int64_t position = slice.first; position < slice.last; ++position) {
      *next++ = dataset_->lengths()[static_cast<std::size_t>(stream_.index_at(position))];
    }
  }
  const auto longest = lengths.max().item<std::int64_t>();
  const at::Tensor tokens = samples.narrow(1, 0, longest + 1).to(at::kLong);
  const at::Tensor places = at::arange(longest).expand({samples.size(0), longest});
  const at::Tensor there = places.lt(lengths);
  at::Tensor data = tokens.narrow(1, 0, longest);
  at::Tensor target = tokens.narrow(1, 1, longest);
  if (collation_ == Collation::kPadded) {
    data = data.contiguous();
    target = target.masked_fill(there.logical_not(), kNoTarget);
  } else {
    data = at::stack({data.masked_select(there), places.masked_select(there)}, -1).unsqueeze(0);
    target = target.masked_select(there).unsqueeze(0);
  }
  return {data.to(device_, /*non_blocking=*/true), target.to(device_, /*non_blocking=*/true)};
}

Batch BatchSource::as_tensors(at::Tensor samples, const at::Tensor& labels) const {
  samples = samples.to(device_, /*non_blocking=*/true);
  if (samples.scalar_type() == at::kByte) {
    samples = samples.to(at::kFloat).div_(255);
  } else if (!is_image(dataset_->shape())) {
    samples = samples.to(at::kLong);
  }
  if (dataset_->shape().sizes.size() == 1 && samples.scalar_type() == at::kLong) {
    const std::int64_t context = samples.size(1) - 1;
    return {samples.narrow(1, 0, context).contiguous(), samples.narrow(1, 1, context).contiguous()};
  }
  return {samples, labels.to(device_, /*non_blocking=*/true)};
}

}  // namespace isochron
