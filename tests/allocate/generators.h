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

/// From 0 to 1, in steps that are no round numbers.
inline double fraction() {
  return static_cast<double>(*rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, 997))) / 997.0;
}

inline std::int64_t up_to(std::int64_t high) {
  return static_cast<std::int64_t>(fraction() * static_cast<double>(high));
}

/// Feasible, every curve a bent line, granularities from 1, 2, 4, 8; a mixed-integer program of moderate size.
inline Problem medium_problem() {
  Problem problem;
  const std::int64_t count = 2 + up_to(10);
  const std::int64_t smallest = std::int64_t{1} << up_to(3);
  for (std::int64_t k = 0; k < count; ++k) {
    Slot slot{
        .curve = Curve::saturating(0.5 * fraction(), 0.3 * fraction(), 0.001 + 0.01 * fraction(), 0.001 * fraction())};
    slot.offset_seconds = 0.1 * fraction();
    slot.granularity = k == 0 ? smallest : smallest << up_to(3);
    slot.min_batch = slot.granularity * up_to(3);
    slot.max_batch = k == 0 ? kNoLimit : slot.min_batch + slot.granularity + up_to(100);
    problem.global_batch += slot.min_batch;
    problem.slots.push_back(slot);
  }
  problem.global_batch += up_to(400);
  return problem;
}

/// Feasible, one granularity that divides B, hundreds of units per worker.
inline Problem large_problem() {
  Problem problem;
  const std::int64_t granularity = 1 + up_to(3);
  const std::int64_t count = 1 + up_to(40);
  for (std::int64_t k = 0; k < count; ++k) {
    if (k > 0 && up_to(4) == 0) {
      problem.slots.push_back(problem.slots.back());
    } else {
      problem.slots.push_back(slot(granularity));
      problem.slots.back().max_batch = k == 0 || up_to(2) == 0 ? kNoLimit : 6 + granularity + up_to(400);
    }
  }
  problem.global_batch = granularity * (8 * count + up_to(100 * count));
  return problem;
}

}  // namespace generators
}  // namespace isochron
