// The random part of one worker's step times.
//
// Every number is a pure function of (seed, worker, step): the processes with a memory (autocorrelated noise, drift)
// are recursions over those draws, so all policies meet the same noise whatever they decide. O(1) per step.
#pragma once

#include <cstdint>

#include "isochron/sim/cluster.h"

namespace isochron::sim {

class NoiseProcess {
 public:
  NoiseProcess(const Noise& noise, std::uint64_t seed, std::uint64_t worker)
      : noise_(noise), seed_(seed), worker_(worker) {}

  /// Moves on to `step`, through all steps between; never backwards.
  void advance(std::int64_t step);

  /// What a perfect observer could know before the step, as a factor on time: drift and autocorrelated noise.
  [[nodiscard]] double known() const { return known_; }
  /// What nobody can know, as a factor on time: white noise and spikes.
  [[nodiscard]] double surprise() const { return surprise_; }

 private:
  void draw(std::int64_t step);

  Noise noise_;
  std::uint64_t seed_;
  std::uint64_t worker_;
  std::int64_t step_ = -1;  // the last one drawn
  double level_ = 0.0;      // of the autocorrelated noise, on the logarithm of time
  double walk_ = 0.0;       // of the drift, on the logarithm of time
  double known_ = 1.0;
  double surprise_ = 1.0;
};

/// The factor that all workers share in a step.
[[nodiscard]] double common_factor(double sigma, std::uint64_t seed, std::int64_t step);

}  // namespace isochron::sim
