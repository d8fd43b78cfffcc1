// One step of a run, or several neighbouring ones summed up: what a plot has a point for.
#pragma once

#include <cstdint>
#include <vector>

#include "isochron/view/spread.h"

namespace isochron::view {

/// One worker's part of a bin. Empty if the worker took no part.
struct Cell {
  Spread batch;
  Spread compute;   // seconds
  Spread wait;      // seconds
  Spread exchange;  // seconds
  Spread offset;    // seconds from the start of the step to the worker's own start

  void merge(const Cell& other);
};

struct Bin {
  std::int64_t ordinal = 0;  // how many records came before; unlike step numbers it never goes back
  std::int64_t records = 1;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  double start = 0.0;  // seconds since the start of the run
  double end = 0.0;
  double samples = 0.0;
  double busy = 0.0;  // seconds that these samples took; steps that overlap count a part of their time each
  Spread seconds;     // of a step
  Spread rate;        // samples per second
  Spread balance;
  Spread utilization;
  Spread loss;
  std::vector<Cell> cells;  // by the worker's place in the view; may be shorter than there are workers
  bool pinned = false;      // stays exact

  /// Takes in the bin that follows this one.
  void merge(const Bin& next);
};

}  // namespace isochron::view
