// Puts a signal on a common scale: how far a value lies from the signal's recent level, in units of its usual distance
// from it. Level and distance are running averages, so a signal that settles elsewhere reads 0 again after a while.
#pragma once

#include <cstdint>

#include "isochron/core/state.h"

namespace isochron {

class Normaliser {
 public:
  /// A value that is not a number teaches nothing.
  void observe(double value);

  /// -4 .. 4; 0 for a value that is not a number, or if nothing is known.
  [[nodiscard]] double normalised(double value) const;
  /// The value that is `normalised` away from the level.
  [[nodiscard]] double restored(double normalised) const { return level_ + normalised * spread(); }

  void exchange(StateExchange& state);

 private:
  [[nodiscard]] double spread() const;

  std::int64_t count_ = 0;
  double level_ = 0.0;
  double variance_ = 0.0;
};

}  // namespace isochron
