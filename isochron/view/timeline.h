// A run of any length in a bounded number of bins, gathered as it goes on.
//
// Steps enter one bin each. When there are too many, neighbours become one bin, which keeps the smallest, the mean and
// the largest of everything; the width of bins doubles as often as it must. Exact stay the first steps, the last ones,
// and those around what somebody will want to look at (pin_here). The memory is bounded by `cells`, workers times bins;
// adding a step costs O(workers). Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "isochron/core/telemetry.h"

namespace isochron::view {

/// The smallest, the mean and the largest of some values: what is left of a number when many steps become one bin.
/// Values that are no finite numbers are left out.
class Spread {
 public:
  void add(double value) {
    if (!std::isfinite(value)) {
      return;
    }
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
    sum_ += value;
    ++count_;
  }
  void merge(const Spread& other) {
    low_ = std::min(low_, other.low_);
    high_ = std::max(high_, other.high_);
    sum_ += other.sum_;
    count_ += other.count_;
  }

  /// Each is kUnknown if there was no value.
  [[nodiscard]] double low() const { return count_ == 0 ? kUnknown : low_; }
  [[nodiscard]] double high() const { return count_ == 0 ? kUnknown : high_; }
  [[nodiscard]] double mean() const { return count_ == 0 ? kUnknown : sum_ / static_cast<double>(count_); }
  [[nodiscard]] double sum() const { return sum_; }
  [[nodiscard]] std::int64_t count() const { return count_; }

 private:
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
  double sum_ = 0.0;
  std::int64_t count_ = 0;
};

/// One worker's part of a bin. Empty if the worker took no part.
struct Cell {
  Spread batch;
  Spread compute;   // seconds
  Spread wait;      // seconds
  Spread exchange;  // seconds
  Spread offset;    // seconds from the start of the step to the worker's own start

  void merge(const Cell& other);
};

/// One step of a run, or several neighbouring ones summed up: what a plot has a point for.
struct Bin {
  std::int64_t ordinal = 0;  // how many records came before; unlike step numbers it never goes back
  std::int64_t records = 1;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  double start = 0.0;  // seconds since the start of the run
  double end = 0.0;
  double samples = 0.0;
  double busy = 0.0;  // seconds that these samples took; steps that overlap count a part of their time each
  Spread seconds;     // of a step
  Spread rate;        // samples per second
  Spread balance;
  Spread utilization;
  Spread loss;
  std::vector<Cell> cells;  // by the worker's place in the view; may be shorter than there are workers
  bool pinned = false;      // stays exact

  /// Takes in the bin that follows this one.
  void merge(const Bin& next);
};

class Timeline {
 public:
  explicit Timeline(std::size_t cells) : cells_(cells) {}

  /// `bin` holds one record; its ordinal is set here.
  void add(Bin bin);
  /// The steps around the coming one stay exact.
  void pin_here();
  /// The steps from `step` on did not happen: the job went back.
  void forget_from(std::int64_t step);

  /// In order.
  [[nodiscard]] std::vector<const Bin*> bins() const;
  /// How many records there were.
  [[nodiscard]] std::int64_t records() const { return records_; }
  /// Records in the widest bins; 1 while every bin is exact.
  [[nodiscard]] std::int64_t width() const { return width_; }

 private:
  [[nodiscard]] std::size_t capacity() const;
  [[nodiscard]] std::int64_t start() const;   // how many of the first records stay exact
  [[nodiscard]] std::int64_t around() const;  // how many before and after a pin do
  void settle(Bin bin);
  void unpin_all_but(std::size_t count);
  void compact();

  std::size_t cells_;
  std::size_t workers_ = 1;
  std::int64_t records_ = 0;
  std::int64_t width_ = 1;
  std::int64_t pinned_until_ = 0;  // ordinal
  std::vector<Bin> settled_;
  std::deque<Bin> tail_;  // the last ones, exact
};

}  // namespace isochron::view
