#include "isochron/core/random/random.h"

#include "isochron/core/error.h"
#include "isochron/core/random/normal.h"

namespace isochron {

std::uint64_t Random::below(std::uint64_t bound) {
  ISO_CHECK(bound >= 1, "Random::below needs a positive bound");
  // Words under `rejected` would make the small remainders likelier than the others.
  const std::uint64_t rejected = (0 - bound) % bound;
  std::uint64_t word = next();
  while (word < rejected) {
    word = next();
  }
  return word % bound;
}

double Random::normal() {
  return normal_quantile(uniform());
}

}  // namespace isochron
