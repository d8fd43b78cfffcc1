#include "isochron/baselines/history.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace isochron {

void History::push(double value) {
  if (full()) {
    values_.pop_back();
  }
  values_.insert(values_.begin(), value);
}

double History::sane(double prediction) const {
  if (std::isnan(prediction)) {
    return values_.front();
  }
  const auto [low, high] = std::ranges::minmax(values_);
  return std::clamp(prediction, 0.5 * low, 2.0 * high);
}

void History::exchange(StateExchange& state) {
  state.field("values", values_);
  if (values_.size() > length_) {
    throw std::invalid_argument(
        "state field values has " + std::to_string(values_.size()) + " numbers; permitted: at most " +
        std::to_string(length_));
  }
}

}  // namespace isochron
