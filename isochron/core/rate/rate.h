// How the learning rate follows the global batch.
//
// B is what the optimizer sees, whatever the split, so the factor depends on B against the batch the learning rate was
// tuned for, never on one worker's share. O(1) per step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "isochron/core/state.h"

namespace isochron {

enum class RateRule : std::uint8_t {
  kNone,      // factor 1
  kLinear,    // B / reference                                   (Goyal et al. 2017)
  kSqrt,      // sqrt(B / reference)                             (Krizhevsky 2014)
  kLegw,      // sqrt, after a linear warm-up that is B / reference times as long   (You et al. 2019)
  kAdaScale,  // between 1 and B / reference, by the measured gradient variance     (Johnson et al. 2020)
};

/// Throws std::invalid_argument naming the value and the permitted names: none, linear, sqrt, legw, adascale.
RateRule parse_rate_rule(std::string_view name);
std::string_view to_string(RateRule rule);

struct RateOptions {
  RateRule rule = RateRule::kNone;
  std::int64_t reference_batch = 0;  // the batch the learning rate was tuned for; 0: the global batch itself (factor 1)
  double warmup_steps = 0.0;         // at the reference batch, >= 0; 0: none
};

/// What AdaScale needs of a step, measured over the K local gradients g_k of b_k samples and their weighted mean g.
struct GradientMoments {
  double mean_local_square = 0.0;  // sum_k (b_k / B) |g_k|^2
  double global_square = 0.0;      // |g|^2
  double effective_workers = 0.0;  // 1 / sum_k (b_k / B)^2: K for equal batches
};

class RateSchedule {
 public:
  RateSchedule() = default;
  /// Throws std::invalid_argument on an option out of range.
  RateSchedule(RateOptions options, std::int64_t global_batch);

  /// For step `step`, counted from 0.
  [[nodiscard]] double factor(std::int64_t step) const;

  /// Feeds AdaScale; the other rules ignore it. Values that are not finite and positive are ignored.
  void observe(const GradientMoments& moments);

  void exchange(StateExchange& state);

 private:
  RateOptions options_;
  std::int64_t global_batch_ = 1;
  double variance_ = 0.0;     // smoothed: gradient variance at the reference batch
  double mean_square_ = 0.0;  // smoothed: squared norm of the true gradient
  double observations_ = 0.0;
};

/// Asynchronous modes: each push carries its own factor.
struct PushRate {
  bool by_batch = false;       // b_k K / B: a larger batch is a better gradient
  bool by_batch_sqrt = false;  // sqrt(b_k K / B)
  bool by_staleness = false;   // 1 / (1 + tau), tau = updates since this worker last pulled
};
double push_factor(
    const PushRate& rule, std::int64_t batch, std::int64_t global_batch, std::int64_t workers, std::int64_t staleness);

}  // namespace isochron
