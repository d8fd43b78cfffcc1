// Machines and profiles small enough to plan by hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/plan/machine.h"
#include "isochron/plan/profile.h"

namespace isochron::plan {

/// Batches 1, 2, 4, … 64 at `fixed` + `slope` b seconds and 100 + b bytes.
inline Profile small_profile(double fixed, double slope) {
  Profile profile;
  profile.model = "m";
  profile.dataset = "d";
  profile.dataset_size = 1000;
  profile.device = "cpu";
  profile.machine = "here";
  for (std::int64_t batch = 1; batch <= 64; batch *= 2) {
    const double seconds = fixed + slope * static_cast<double>(batch);
    profile.points.push_back(
        {.batch = batch, .p50_seconds = seconds, .p90_seconds = seconds, .bytes = 100.0 + static_cast<double>(batch)});
  }
  return profile;
}

/// `count` machines that take `seconds` per sample and nothing else.
inline Group linear_group(const std::string& name, double seconds, std::int64_t count = 1) {
  Group group;
  group.machine.name = name;
  group.machine.curve = Curve::linear(seconds);
  group.count = count;
  return group;
}

}  // namespace isochron::plan
