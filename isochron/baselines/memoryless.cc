#include "isochron/baselines/memoryless.h"

namespace isochron {

double Memoryless::predict(const Usage& /*now*/) const {
  return last_;
}

void Memoryless::learn(double speed, const Usage& /*usage*/) {
  last_ = speed;
}

void Memoryless::exchange(StateExchange& state) {
  state.field("last", last_);
}

}  // namespace isochron
