// Random allocation problems for property tests: all kinds of curves, with the coincidences (equal workers, plateaus,
// times that are small whole numbers) that random reals would never hit.
#pragma once

#include <cstdint>
#include <ostream>
#include <utility>
#include <vector>

#include <rapidcheck.h>

#include "isochron/core/allocate/allocate.h"

namespace isochron {

struct Problem {
  std::vector<Slot> slots;
  std::int64_t global_batch = 0;
};

inline void showValue(const Problem& problem, std::ostream& out) {  // NOLINT(readability-identifier-naming): RapidCheck
  out << "B = " << problem.global_batch;
  for (const Slot& slot : problem.slots) {
    const Curve::BentLine& line = slot.curve.bent_line();
    out << "\n  " << (slot.curve.is_table() ? "table" : "line") << " floor " << line.floor << " + " << line.floor_slope
        << " b, " << line.fixed << " + " << line.slope << " b; offset " << slot.offset_seconds << ", from "
        << slot.min_batch << " to " << slot.max_batch << " by " << slot.granularity;
  }
}

namespace generators {

inline std::int64_t whole(std::int64_t low, std::int64_t high) {
  return *rc::gen::inRange(low, high + 1);
}

/// Half of them small whole numbers, so that times coincide; the others thirds, so that times round.
inline double duration(std::int64_t high) {
  const auto number = static_cast<double>(whole(0, high));
  return *rc::gen::arbitrary<bool>() ? number : number / 3.0;
}

inline Curve table() {
  std::vector<Curve::Point> points;
  Curve::Point point;
  const std::int64_t count = whole(1, 4);
  for (std::int64_t i = 0; i < count; ++i) {
    point.batch += static_cast<double>(whole(1, 6));
    point.seconds += duration(6);
    points.push_back(point);
  }
  return Curve::table(std::move(points));
}

inline Curve curve() {
  switch (whole(0, 4)) {
    case 0:
      return Curve::linear(duration(9));
    case 1:
      return Curve::affine(duration(20), duration(9));
    case 2:
      return Curve::saturating(duration(40), duration(10), duration(9));
    case 3:
      return Curve::saturating(duration(40), duration(10), duration(9), duration(1));
    default:
      return table();
  }
}

inline Slot slot(std::int64_t granularity) {
  Slot slot{.curve = curve(), .offset_seconds = *rc::gen::arbitrary<bool>() ? duration(12) : 0.0};
  slot.granularity = granularity;
  if (*rc::gen::arbitrary<bool>()) {
    slot.min_batch = whole(0, 6);
  }
  if (*rc::gen::arbitrary<bool>()) {
    slot.max_batch = slot.min_batch + whole(0, 20);
  }
  return slot;
}

/// `mixed`: granularities from a divisor chain; otherwise all the same.
inline Problem problem(bool mixed) {
  static const std::vector<std::vector<std::int64_t>> chains = {
      {1, 2, 4, 8}, {1, 3, 6, 12}, {2, 4, 8, 8}, {3, 6, 6, 12}, {4, 4, 8, 16}};
  const std::vector<std::int64_t> chain = *rc::gen::elementOf(chains);
  const std::int64_t common = *rc::gen::elementOf(chain);
  Problem problem;
  const std::int64_t count = whole(1, 5);
  for (std::int64_t k = 0; k < count; ++k) {
    if (k > 0 && whole(0, 3) == 0) {
      problem.slots.push_back(problem.slots.back());  // an equal worker
    } else {
      problem.slots.push_back(slot(mixed ? *rc::gen::elementOf(chain) : common));
    }
  }
  problem.global_batch = whole(0, 40);
  return problem;
}

}  // namespace generators
}  // namespace isochron
