// Short ways to make the records that tests feed to a view.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isochron/core/trace/run_log.h"
#include "isochron/view/run_view.h"

namespace isochron::view {

inline RunHeader header_of(const std::vector<std::string>& names, std::int64_t global_batch = 100) {
  RunHeader header;
  header.program = "train";
  header.version = "1.0";
  header.policy = "isochron";
  header.cluster = "pair";
  header.global_batch = global_batch;
  for (const std::string& name : names) {
    header.workers.push_back({.id = header.workers.size(), .name = name, .kind = "cpu"});
  }
  return header;
}

/// One worker for each batch; each waits for the longest, and the step takes as long as that.
inline StepRecord step_of(
    std::int64_t step, double start, const std::vector<std::int64_t>& batches, const std::vector<double>& compute) {
  StepRecord record;
  record.step = step;
  record.start_seconds = start;
  for (const double seconds : compute) {
    record.seconds = std::max(record.seconds, seconds);
  }
  for (std::size_t i = 0; i < batches.size(); ++i) {
    record.workers.push_back(
        {.id = i,
         .batch = batches[i],
         .start_seconds = start,
         .compute_seconds = compute[i],
         .wait_seconds = record.seconds - compute[i]});
  }
  return record;
}

/// Of 50 samples.
inline UpdateRecord update_of(WorkerId worker, double start, double seconds) {
  return {
      .seconds = seconds,
      .worker = {.id = worker, .batch = 50, .start_seconds = start, .compute_seconds = seconds},
      .staleness = 1};
}

/// `steps` steps of a second each on two workers; the second worker's time is 1 s, the first's 0.5 s.
inline RunView view_of(std::int64_t steps, std::size_t cells = RunView::kDefaultCells) {
  RunView view(header_of({"fast", "slow"}), cells);
  for (std::int64_t step = 0; step < steps; ++step) {
    view.add(step_of(step, static_cast<double>(step), {60, 40}, {0.5, 1.0}));
  }
  return view;
}

}  // namespace isochron::view
