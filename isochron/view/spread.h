// The smallest, the mean and the largest of some values: what is left of a number when many steps become one bin.
// Values that are no finite numbers are left out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "isochron/core/telemetry.h"

namespace isochron::view {

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

}  // namespace isochron::view
