#include "isochron/data/sample_stream.h"

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

std::span<float> as_floats(std::span<std::byte> bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  ISO_CHECK(address % alignof(float) == 0, "memory that is not aligned for floats");
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

SampleStream::SampleStream(
    std::shared_ptr<const Dataset> dataset, const SamplerOptions& order, std::optional<Augment> augment)
    : dataset_(std::move(dataset)),
      order_(order),
      samples_per_epoch_(Sampler(order).samples_per_epoch()),
      augment_(std::move(augment)) {
  if (order.dataset_size != dataset_->size()) {
    throw std::invalid_argument(
        "dataset size is " + std::to_string(order.dataset_size) + "; permitted: the dataset's " +
        std::to_string(dataset_->size()));
  }
  ISO_CHECK(!augment_ || augment_->shape() == dataset_->shape(), "augmentation of another shape");
}

std::int64_t SampleStream::sample_bytes() const {
  const SampleShape& shape = dataset_->shape();
  return augment_ ? shape.elements() * static_cast<std::int64_t>(sizeof(float)) : shape.bytes();
}

std::int64_t SampleStream::index_at(std::int64_t running_position) const {
  const std::int64_t epoch = running_position / samples_per_epoch_;
  return epoch_permutation(order_.dataset_size, order_.seed, epoch).index_at(running_position % samples_per_epoch_);
}

std::int64_t SampleStream::fetch(std::int64_t running_position, std::span<std::byte> out) const {
  ISO_CHECK(running_position >= 0 && std::ssize(out) == sample_bytes(), "a sample that does not fit");
  const std::int64_t epoch = running_position / samples_per_epoch_;
  const std::int64_t position = running_position % samples_per_epoch_;
  const std::int64_t index = index_at(running_position);
  if (!augment_) {
    return dataset_->read(index, out);
  }
  std::vector<std::byte> stored(static_cast<std::size_t>(dataset_->shape().bytes()));
  const std::int64_t label = dataset_->read(index, stored);
  augment_->render(augment_->view_at(epoch, position), stored, as_floats(out));
  return label;
}

Interval SampleStream::running(const SamplerState& state, const Interval& positions) const {
  const std::int64_t start = state.epoch * samples_per_epoch_;
  return {.first = start + positions.first, .last = start + positions.last};
}

std::vector<Interval> SampleStream::coming_slices(
    Sampler sampler, std::span<const std::int64_t> batch_sizes, std::size_t worker, std::int64_t steps) const {
  std::vector<Interval> slices;
  for (std::int64_t step = 0; step < steps; ++step) {
    slices.push_back(running(sampler.state(), sampler.slices(batch_sizes)[worker]));
    sampler.advance();
  }
  return slices;
}

}  // namespace isochron::data
