// A test bench: workers with known time curves, a policy, and the loop between them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/curve/curve.h"
#include "isochron/core/policy/policy.h"

namespace isochron {

struct Bench {
  Roster roster;
  std::vector<Curve> curves;  // one per worker

  Bench(std::int64_t global_batch, std::vector<Curve> worker_curves) : curves(std::move(worker_curves)) {
    roster.global_batch = global_batch;
    for (std::size_t k = 0; k < curves.size(); ++k) {
      roster.workers.emplace_back().id = k + 1;
    }
  }

  /// Noise-free times for a split.
  [[nodiscard]] std::vector<Reading> readings(const std::vector<std::int64_t>& split) const {
    std::vector<Reading> result;
    for (std::size_t k = 0; k < split.size(); ++k) {
      const double seconds = curves[k].seconds(static_cast<double>(split[k]));
      result.push_back({.valid = split[k] > 0, .batch = split[k], .seconds = seconds});
    }
    return result;
  }

  [[nodiscard]] double slowest(const std::vector<std::int64_t>& split) const {
    double seconds = 0.0;
    for (const Reading& reading : readings(split)) {
      seconds = std::max(seconds, reading.seconds);
    }
    return seconds;
  }
};

/// The proposal as a split; it must be one of whole numbers, within bounds, that adds up to B.
inline std::vector<std::int64_t> split_of(const Roster& roster, const Proposal& proposal) {
  std::vector<std::int64_t> split;
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < proposal.batches.size(); ++k) {
    split.push_back(std::llround(proposal.batches[k]));
    EXPECT_EQ(static_cast<double>(split[k]), proposal.batches[k]);
    EXPECT_GE(split[k], roster.workers[k].min_batch);
    EXPECT_LE(split[k], roster.workers[k].max_batch);
    sum += split[k];
  }
  EXPECT_EQ(sum, roster.global_batch);
  EXPECT_FALSE(proposal.words.empty());
  return split;
}

}  // namespace isochron
