// Prepares samples in background threads, one by one, before the step that takes them.
//
// What is prepared is samples by position, not batches: when a worker's slice moves or grows, everything that the new
// slice shares with the plan is there already and only the difference is fetched. A sample that drops out of the plan
// stays as long as its place is not needed.
//
// a) plan() names the slices to come, soonest first; threads fetch their samples in that order.
// b) take() hands out a slice: prepared samples are copied, the caller fetches missing ones together with the threads.
//
// Memory is bounded: `capacity` samples, taken once. plan() costs O(capacity log capacity), take() O(n log capacity)
// and the copies. fetch() is called from the threads and from take()'s caller at the same time, never twice at a time
// for one position. plan() and take() are for one thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "isochron/core/sample/interval.h"

namespace isochron::data {

struct PrefetchOptions {
  std::int64_t threads = 1;     // 0 (everything is fetched by take) to 256
  std::int64_t capacity = 512;  // samples held or under way, 1 to 2^24
};

class Prefetcher {
 public:
  /// Writes the sample at a position to memory of the caller and returns its label.
  using Fetch = std::function<std::int64_t(std::int64_t position, std::span<std::byte> out)>;

  /// Throws std::invalid_argument naming the field, the value and what is permitted.
  Prefetcher(Fetch fetch, std::int64_t sample_bytes, const PrefetchOptions& options);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  /// Returns when the samples under way are done; what is planned is not begun.
  ~Prefetcher() = default;

  /// Replaces the plan. What exceeds the capacity is left out.
  void plan(std::span<const Interval> slices);

  /// Writes the samples of a slice, planned or not, in the order of their positions. An exception of fetch() for one of
  /// them is thrown here; the prefetcher stays usable and the sample will be fetched anew.
  void take(const Interval& slice, std::span<std::byte> out, std::span<std::int64_t> labels);

 private:
  enum class EntryState : std::uint8_t { kWanted, kUnderWay, kReady, kFailed };
  struct Entry {
    std::size_t slot = 0;
    EntryState state = EntryState::kWanted;
    bool planned = true;
    std::int64_t label = 0;
    std::exception_ptr failure;
  };
  using Entries = std::map<std::int64_t, Entry>;  // by position; each owns a slot

  /// What take() fills.
  struct Batch {
    Interval slice;
    std::span<std::byte> samples;
    std::span<std::int64_t> labels;
    std::size_t sample_bytes = 0;

    [[nodiscard]] std::span<std::byte> sample(std::int64_t position) const;
    [[nodiscard]] std::int64_t& label(std::int64_t position) const;
  };

  void work(const std::stop_token& stop);
  [[nodiscard]] std::span<std::byte> slot_memory(std::size_t slot);

  // The parts of take(); each returns the positions that are left to the next one.
  std::vector<std::int64_t> copy_ready(const Batch& batch);
  std::vector<std::int64_t> fetch_what_nobody_began(const Batch& batch, std::span<const std::int64_t> positions);
  void await(const Batch& batch, std::span<const std::int64_t> positions);
  void copy(const Batch& batch, std::int64_t position, const Entry& entry);
  bool claim(std::int64_t position);

  // These are called with the mutex held.
  bool add(std::int64_t position);
  Entries::iterator drop(Entries::iterator entry);
  void forget_plan();
  void make_room(std::size_t slots);
  void want_first(std::span<const std::int64_t> positions);

  const Fetch fetch_;
  const std::size_t sample_bytes_;
  const std::size_t capacity_;
  std::vector<std::byte> slots_;  // each belongs to whoever fetches into it or took its entry out
  std::mutex mutex_;              // guards what follows
  std::condition_variable_any wanted_;
  std::condition_variable arrived_;
  Entries entries_;
  std::deque<std::int64_t> queue_;     // positions to fetch, soonest first; those that are no longer wanted are skipped
  std::vector<std::size_t> free_;      // slots
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace isochron::data
