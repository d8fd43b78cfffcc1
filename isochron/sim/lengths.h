// Samples that cost differently, for a simulation: how their lengths are distributed, what a length costs, and how the
// samples of a step are dealt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/core/deal/cost.h"
#include "isochron/core/deal/deal.h"
#include "isochron/core/options.h"
#include "isochron/core/replica/work_shares.h"

namespace isochron::sim {

struct Lengths {
  // Log-normal, clipped to least .. most and rounded to whole numbers.
  double median = 148.0;
  double sigma = 0.8;
  double least = 8.0;
  double most = 2048.0;
  std::vector<double> given;  // instead: drawn from these; finite, 0 or more

  LengthCost cost;
  Collation collation = Collation::kPacked;
  bool by_cost = true;  // false: by count, in the order drawn

  void describe(OptionTable& table);
  /// Throws std::invalid_argument naming the value and what is permitted.
  void validate() const;

  /// The works of `samples` samples; the same for the same seed.
  [[nodiscard]] SampleWorks works(std::int64_t samples, std::uint64_t seed) const;
  /// What a job knows of them: works, or lengths where it learns what their squares cost.
  [[nodiscard]] SampleWorks known_works(std::int64_t samples, std::uint64_t seed) const;
};

/// "lognormal", or "lognormal:sigma=0.5,median=300". Throws like validate(), and on another name.
[[nodiscard]] Lengths parse_lengths(const std::string& text);

}  // namespace isochron::sim
