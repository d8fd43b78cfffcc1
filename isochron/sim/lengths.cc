#include "isochron/sim/lengths.h"

#include <algorithm>
#include <cmath>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron::sim {

void Lengths::describe(OptionTable& table) {
  table.number("median", median, 1e-3, 1e9, "half of the samples are shorter");
  table.number("sigma", sigma, 0.0, 10.0, "standard deviation of the logarithm");
  table.number("least", least, 0.0, 1e9, "shorter ones are so long");
  table.number("most", most, 0.0, 1e9, "longer ones are so long");
}

void Lengths::validate() const {
  require(least <= most, "least", least, "at most the longest length");
  for (const double length : given) {
    require(length >= 0.0 && length <= 1e9, "a length", length, "0 to a thousand million");
  }
}

SampleWorks Lengths::works(std::int64_t samples, std::uint64_t seed) const {
  Random random({seed, 0x6c656e67746873});  // "lengths"
  SampleWorks works{.works = std::vector<float>(static_cast<std::size_t>(samples)), .collation = collation};
  for (float& work : works.works) {
    const double length = given.empty()
                              ? std::clamp(std::round(median * std::exp(sigma * random.normal())), least, most)
                              : given[random.below(given.size())];
    work = static_cast<float>(cost.work(length));
  }
  return works;
}

SampleWorks Lengths::known_works(std::int64_t samples, std::uint64_t seed) const {
  if (!cost.learned) {
    return works(samples, seed);
  }
  Lengths linear = *this;
  linear.cost = {};
  SampleWorks known = linear.works(samples, seed);
  known.learns_squares = true;
  return known;
}

Lengths parse_lengths(const std::string& text) {
  Specification specification = Specification::parse("lengths", text);
  require(specification.name == "lognormal", "lengths", in_quotes(specification.name), "lognormal, or a file of them");
  Lengths lengths;
  OptionTable table(std::move(specification));
  lengths.describe(table);
  table.finish();
  lengths.validate();
  return lengths;
}

}  // namespace isochron::sim
