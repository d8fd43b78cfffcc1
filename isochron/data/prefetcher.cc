#include "isochron/data/prefetcher.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

constexpr std::int64_t kMaxThreads = 256;
constexpr std::int64_t kMaxCapacity = std::int64_t{1} << 24U;
constexpr std::int64_t kMaxSampleBytes = std::int64_t{1} << 32U;

/// Without threads nothing is prepared, so nothing is held.
std::size_t checked_capacity(const PrefetchOptions& options) {
  require_between("prefetch threads", options.threads, 0, kMaxThreads);
  require_between("prefetch capacity", options.capacity, 1, kMaxCapacity);
  return options.threads == 0 ? 0 : static_cast<std::size_t>(options.capacity);
}

/// The first `most` positions of the slices.
std::vector<std::int64_t> positions_of(std::span<const Interval> slices, std::size_t most) {
  std::vector<std::int64_t> positions;
  for (const Interval& slice : slices) {
    for (std::int64_t position = slice.first; position < slice.last && positions.size() < most; ++position) {
      positions.push_back(position);
    }
  }
  return positions;
}

}  // namespace

Prefetcher::Prefetcher(Fetch fetch, std::int64_t sample_bytes, const PrefetchOptions& options)
    : fetch_(std::move(fetch)),
      sample_bytes_(static_cast<std::size_t>(sample_bytes)),
      capacity_(checked_capacity(options)) {
  require_between("sample bytes", sample_bytes, 1, kMaxSampleBytes);
  slots_.resize(capacity_ * sample_bytes_);
  free_.resize(capacity_);
  std::iota(free_.begin(), free_.end(), std::size_t{0});
  for (std::int64_t i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

std::span<std::byte> Prefetcher::slot_memory(std::size_t slot) {
  return std::span(slots_).subspan(slot * sample_bytes_, sample_bytes_);
}

void Prefetcher::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (wanted_.wait(lock, stop, [&] { return !queue_.empty(); }) && !stop.stop_requested()) {
    const auto found = entries_.find(queue_.front());
    queue_.pop_front();
    if (found == entries_.end() || found->second.state != EntryState::kWanted) {
      continue;
    }
    Entry& entry = found->second;  // stays where it is: nobody drops what is under way
    entry.state = EntryState::kUnderWay;
    lock.unlock();
    std::int64_t label = 0;
    std::exception_ptr failure;
    try {
      label = fetch_(found->first, slot_memory(entry.slot));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    entry.label = label;
    entry.state = failure ? EntryState::kFailed : EntryState::kReady;
    entry.failure = std::move(failure);
    arrived_.notify_all();
  }
}

/// Whether there was a place for it.
bool Prefetcher::add(std::int64_t position) {
  if (free_.empty()) {
    return false;
  }
  entries_.emplace(position, Entry{.slot = free_.back()});
  free_.pop_back();
  return true;
}

Prefetcher::Entries::iterator Prefetcher::drop(Entries::iterator entry) {
  free_.push_back(entry->second.slot);
  return entries_.erase(entry);
}

void Prefetcher::forget_plan() {
  queue_.clear();
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry->second.planned = false;
    entry = entry->second.state == EntryState::kWanted ? drop(entry) : std::next(entry);
  }
}

/// Drops what is not planned until `slots` are free: low positions first, since those are past or soon will be.
void Prefetcher::make_room(std::size_t slots) {
  for (auto entry = entries_.begin(); entry != entries_.end() && free_.size() < slots;) {
    const bool idle = entry->second.state != EntryState::kUnderWay;
    entry = idle && !entry->second.planned ? drop(entry) : std::next(entry);
  }
}

void Prefetcher::plan(std::span<const Interval> slices) {
  const std::vector<std::int64_t> positions = positions_of(slices, capacity_);
  {
    const std::lock_guard lock(mutex_);
    forget_plan();
    std::size_t absent = 0;
    for (const std::int64_t position : positions) {
      const auto found = entries_.find(position);
      if (found != entries_.end()) {
        found->second.planned = true;
      } else {
        ++absent;
      }
    }
    make_room(absent);
    for (const std::int64_t position : positions) {
      if (!entries_.contains(position) && add(position)) {
        queue_.push_back(position);
      }
    }
  }
  wanted_.notify_all();
}

/// Lets the threads help with a slice before they go on with the plan.
void Prefetcher::want_first(std::span<const std::int64_t> positions) {
  std::vector<std::int64_t> soonest;
  for (const std::int64_t position : positions) {
    const auto found = entries_.find(position);
    if (found != entries_.end() ? found->second.state == EntryState::kWanted : add(position)) {
      soonest.push_back(position);
    }
  }
  queue_.insert(queue_.begin(), soonest.begin(), soonest.end());
}

/// Whether nobody has begun the sample: then it is the caller's to fetch.
bool Prefetcher::claim(std::int64_t position) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(position);
  if (found == entries_.end()) {
    return true;
  }
  if (found->second.state != EntryState::kWanted) {
    return false;
  }
  drop(found);
  return true;
}

std::span<std::byte> Prefetcher::Batch::sample(std::int64_t position) const {
  return samples.subspan(static_cast<std::size_t>(position - slice.first) * sample_bytes, sample_bytes);
}

std::int64_t& Prefetcher::Batch::label(std::int64_t position) const {
  return labels[static_cast<std::size_t>(position - slice.first)];
}

void Prefetcher::copy(const Batch& batch, std::int64_t position, const Entry& entry) {
  std::ranges::copy(slot_memory(entry.slot), batch.sample(position).begin());
  batch.label(position) = entry.label;
}

std::vector<std::int64_t> Prefetcher::copy_ready(const Batch& batch) {
  std::vector<Entries::node_type> ready;
  std::vector<std::int64_t> rest;
  std::unique_lock lock(mutex_);
  for (std::int64_t position = batch.slice.first; position < batch.slice.last; ++position) {
    const auto found = entries_.find(position);
    if (found != entries_.end() && found->second.state == EntryState::kReady) {
      ready.push_back(entries_.extract(found));
    } else {
      rest.push_back(position);
    }
  }
  want_first(rest);
  lock.unlock();
  wanted_.notify_all();
  for (const auto& node : ready) {
    copy(batch, node.key(), node.mapped());
  }
  lock.lock();
  for (const auto& node : ready) {
    free_.push_back(node.mapped().slot);
  }
  return rest;
}

std::vector<std::int64_t> Prefetcher::fetch_what_nobody_began(
    const Batch& batch, std::span<const std::int64_t> positions) {
  std::vector<std::int64_t> begun;
  for (const std::int64_t position : positions) {
    if (claim(position)) {
      batch.label(position) = fetch_(position, batch.sample(position));
    } else {
      begun.push_back(position);
    }
  }
  return begun;
}

void Prefetcher::await(const Batch& batch, std::span<const std::int64_t> positions) {
  std::unique_lock lock(mutex_);
  for (const std::int64_t position : positions) {
    const auto found = entries_.find(position);
    arrived_.wait(lock, [&] { return found->second.state >= EntryState::kReady; });
    const std::exception_ptr failure = found->second.failure;
    if (!failure) {
      copy(batch, position, found->second);
    }
    drop(found);
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

void Prefetcher::take(const Interval& slice, std::span<std::byte> out, std::span<std::int64_t> labels) {
  ISO_CHECK(
      slice.size() >= 0 && std::ssize(labels) == slice.size() && out.size() == labels.size() * sample_bytes_,
      "memory for another number of samples");
  const Batch batch{.slice = slice, .samples = out, .labels = labels, .sample_bytes = sample_bytes_};
  await(batch, fetch_what_nobody_began(batch, copy_ready(batch)));
}

}  // namespace isochron::data
