// Tracks the level of one noisy series with a bank of filters, from "never changes" to "changes at every step".
//
// Each filter is a local-level Kalman filter, y_n = m_n + noise, m_n = m_(n-1) + drift, with its own ratio q of drift
// to noise variance and its own estimate R of the noise (a shared R would lock in the wrong q). The filters are mixed
// by a softmax of their discounted log likelihoods, a tenth of it pooled over all workers. O(1) per reading: six
// filters.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "isochron/core/state.h"

namespace isochron {

struct LevelBelief {
  double level = 0.0;
  double variance = 0.0;  // of the level
  double noise = 0.0;     // variance of a reading about the level
};

class LevelBank {
 public:
  static constexpr std::size_t kFilters = 6;
  static constexpr double kFirstNoise = 0.05 * 0.05;
  using PerFilter = std::array<double, kFilters>;

  enum class Verdict {
    kOrdinary,  // follow it
    kHold,      // an outlier that nothing confirms yet: the level stays
    kChanged,   // the level jumped: forget the old one
  };

  /// Starts anew at the first reading; `noise` is the first guess of the readings' variance.
  void reset(double reading, double noise = kFirstNoise);

  /// Before a reading: lets the level drift, by `doubt` (a variance) more than usual after a move.
  void predict(double doubt);

  struct Judged {
    double reading = 0.0;
    Verdict verdict = Verdict::kOrdinary;
    double jumped_to = 0.0;    // the new level if it changed
    bool learn_noise = true;   // off where the reading's error says more about something else
    double forgetting = 0.98;  // weight of past likelihood
  };
  /// After it.
  void update(const Judged& judged);

  /// Mixes the filters; `pooled` is the sum of all workers' log likelihoods.
  void weigh(std::span<const double, kFilters> pooled);

  [[nodiscard]] LevelBelief belief() const;
  [[nodiscard]] const PerFilter& log_likelihood() const { return log_likelihood_; }

  /// The noise without what is left of its first guess; needs a few readings to mean anything.
  [[nodiscard]] double unbiased_noise() const;
  /// Readings that taught the noise.
  [[nodiscard]] double readings() const { return readings_; }

  /// Adds to the level: the unit of the readings changed.
  void shift(double change);
  void exchange(StateExchange& state);

 private:
  PerFilter level_{};
  PerFilter spread_{};  // variance of the level, in units of the filter's noise
  PerFilter noise_{};
  PerFilter log_likelihood_{};
  PerFilter weight_{};
  double first_noise_ = kFirstNoise;
  double readings_ = 0.0;
  double first_guess_left_ = 1.0;  // weight of the first guess in the noise
};

}  // namespace isochron
