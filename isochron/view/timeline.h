// A run of any length in a bounded number of bins, gathered as it goes on.
//
// Steps enter one bin each. When there are too many, neighbours become one bin, which keeps the smallest, the mean and
// the largest of everything; the width of bins doubles as often as it must. Exact stay the first steps, the last ones,
// and those around what somebody will want to look at (pin_here). The memory is bounded by `cells`, workers times bins;
// adding a step costs O(workers). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "isochron/view/bin.h"

namespace isochron::view {

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
