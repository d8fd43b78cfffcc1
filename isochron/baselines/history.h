// The last few values of a series, newest first. O(length) a value; meant for lengths of a few dozen.
#pragma once

#include <cstddef>
#include <vector>

#include "isochron/core/state.h"

namespace isochron {

class History {
 public:
  explicit History(std::size_t length) : length_(length) {}

  void push(double value);

  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] bool full() const { return values_.size() == length_; }
  /// `age` 0 is the newest; `age` < size().
  [[nodiscard]] double operator[](std::size_t age) const { return values_[age]; }

  /// `prediction`, kept between half the smallest and twice the largest value (positive ones only); the newest value
  /// if `prediction` is not a number.
  [[nodiscard]] double sane(double prediction) const;

  void exchange(StateExchange& state);

 private:
  std::size_t length_;
  std::vector<double> values_;
};

}  // namespace isochron
