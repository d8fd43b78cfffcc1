// What samples of unequal length make of a step: dealt by cost, and by count in the order drawn.
//
// The machines' curves were measured with samples of one kind, which are taken for samples of mean cost: works are
// multiples of that. 32 steps of samples are drawn; each is dealt by cost (core/deal) and by count, and the mean of the
// longest times of both, over that of the plan, says how much longer a step computes. 32 deals.
#pragma once

#include <cstdint>
#include <vector>

#include "isochron/plan/predict.h"
#include "isochron/sim/lengths.h"

namespace isochron::plan {

struct LengthForecast {
  struct Deal {
    double step_seconds = 0.0;
    double samples_per_second = 0.0;
    double padding = 0.0;  // of what is computed, 0..1
  };
  Deal by_cost;
  Deal by_count;  // in the shares of the plan
  Deal equal;     // by count in equal shares
};

/// `best` and `equal` are the machines' steps where all samples cost the same.
[[nodiscard]] LengthForecast forecast_lengths(
    const std::vector<Group>& groups, const Step& best, const Step& equal, const sim::Lengths& lengths);

}  // namespace isochron::plan
