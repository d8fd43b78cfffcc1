#include "isochron/core/replica/epoch_cursor.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "isochron/core/error.h"

namespace isochron {

void DataPlace::exchange(StateExchange& state) {
  state.field("dataset_size", dataset_size);
  state.field("epoch", epoch);
  state.field("position", position);
  state.part("ledger", ledger);
}

EpochCursor::EpochCursor(const SamplerOptions& options) : EpochCursor(options, Sampler(options)) {
  require(
      options.global_batch <= options.dataset_size,
      "global_batch",
      options.global_batch,
      "up to " + std::to_string(options.dataset_size) + ", the samples that there are");
}

EpochCursor EpochCursor::of_stream(const SamplerOptions& options) {
  ISO_CHECK(options.dataset_size == 0, "a stream has no size");
  return {options, std::nullopt};
}

EpochCursor::EpochCursor(const SamplerOptions& options, const std::optional<Sampler>& sampler)
    : options_(options), sampler_(sampler), ledger_(epoch_size()) {
}

std::int64_t EpochCursor::epoch_size() const {
  return sampler_ ? sampler_->samples_per_epoch() : kMostPositions;
}

std::int64_t EpochCursor::step_size(std::int64_t from_stream, std::int64_t batches) const {
  const std::int64_t whole = batches * options_.global_batch;
  const std::int64_t most = sampler_ ? 0 : whole;
  const std::int64_t least = sampler_ ? 0 : 1;
  if (from_stream < least || from_stream > most) {
    throw std::invalid_argument(
        "samples of a stream are " + std::to_string(from_stream) + "; permitted: " +
        (sampler_ ? std::string("none, since the job has a dataset") : "1 to " + std::to_string(most)));
  }
  return sampler_ ? std::min(whole, epoch_size() - position()) : from_stream;
}

std::vector<Interval> EpochCursor::slices(std::span<const std::int64_t> batch_sizes, std::int64_t samples) const {
  if (sampler_) {
    return sampler_->slices(batch_sizes);
  }
  return slices_of(deal(samples, batch_sizes));
}

std::vector<Interval> EpochCursor::slices_of(std::span<const std::int64_t> samples) const {
  std::vector<Interval> slices;
  slices.reserve(samples.size());
  std::int64_t first = position();
  for (const std::int64_t size : samples) {
    slices.push_back({.first = first, .last = first + size});
    first += size;
  }
  return slices;
}

void EpochCursor::finish(std::span<const Interval> slices, std::span<const Worker> workers) {
  if (position() == 0) {
    ledger_ = Ledger(epoch_size());
  }
  for (std::size_t k = 0; k < slices.size(); ++k) {
    ledger_.stage({.positions = slices[k], .worker = workers[k].id});
  }
  ledger_.commit();
  if (sampler_) {
    // A round has more samples than Sampler::advance() goes on by.
    sampler_->restore({.seed = options_.seed, .epoch = epoch(), .position = slices.back().last});
    ISO_CHECK(position() != 0 || ledger_.complete(), "an epoch used some sample twice or not at all");
  } else {
    position_ = slices.back().last;
  }
}

void EpochCursor::end_epoch() {
  const bool once = ledger_.used() == position() && ledger_.duplicates().empty() && ledger_.intervals().size() <= 1;
  ISO_CHECK(position() == 0 || once, "an epoch used some sample twice or not at all");
  if (sampler_) {
    sampler_->restore({.seed = options_.seed, .epoch = epoch() + 1, .position = 0});
  } else {
    ledger_ = Ledger(position());  // only now is it known how many samples there were
    ledger_.stage({.positions = {.first = 0, .last = position()}});
    ledger_.commit();
  }
  ++epoch_;
  position_ = 0;
}

DataPlace EpochCursor::place() const {
  return {.dataset_size = options_.dataset_size, .epoch = epoch(), .position = position(), .ledger = ledger_};
}

void EpochCursor::go_to(const DataPlace& place) {
  if (place.dataset_size != options_.dataset_size) {
    throw std::invalid_argument(
        "the dataset's size is " + std::to_string(options_.dataset_size) + "; permitted: that of the checkpoint, " +
        std::to_string(place.dataset_size));
  }
  const bool ended = place.position == 0;  // then the ledger is of the epoch before, whose size may have been another
  if ((!ended && place.ledger.size() != epoch_size()) || place.epoch < 0 || place.position < 0 ||
      place.position > epoch_size()) {
    throw std::invalid_argument("the saved place in the data is not one of this dataset");
  }
  if (sampler_) {
    Sampler sampler = *sampler_;
    sampler.restore({.seed = options_.seed, .epoch = place.epoch, .position = place.position});
    sampler_ = sampler;
  }
  epoch_ = place.epoch;
  position_ = place.position;
  ledger_ = place.ledger;
}

}  // namespace isochron
