// How the learning rate follows the global batch.
//
// B is what the optimizer sees, whatever the split, so the factor depends on B against the batch the learning rate was
// tuned for (k = B / reference), never on one worker's share. O(1) per step. Not thread-safe.
//
// Every rule may have a linear warm-up from 0. The rule says how long it is at B: LEGW's lasts k times as many epochs
// as at the reference batch, so, an epoch having k times fewer steps, as many steps; the warm-up of the others lasts
// as many epochs (Goyal et al. 2017), so 1 / k times as many steps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "isochron/core/names.h"
#include "isochron/core/state.h"

namespace isochron {

enum class RateRule : std::uint8_t {
  kNone,      // factor 1
  kLinear,    // k                                               (Goyal et al. 2017)
  kSqrt,      // sqrt(k)                                         (Krizhevsky 2014)
  kLegw,      // sqrt(k), the warm-up k times as many epochs     (You et al. 2019)
  kAdaScale,  // from 1 to k, by the measured gradient variance  (Johnson et al. 2020)
};

inline constexpr Names<RateRule, 5> kRateRuleNames{
    {{RateRule::kNone, "none"},
     {RateRule::kLinear, "linear"},
     {RateRule::kSqrt, "sqrt"},
     {RateRule::kLegw, "legw"},
     {RateRule::kAdaScale, "adascale"}}};

/// Throws std::invalid_argument naming the value and the permitted names.
RateRule parse_rate_rule(std::string_view name);
std::string_view to_string(RateRule rule);

struct RateOptions {
  RateRule rule = RateRule::kNone;
  std::int64_t reference_batch = 0;  // the batch the learning rate was tuned for; 0: the global batch itself (factor 1)
  double warmup_steps = 0.0;         // at the reference batch, >= 0; 0: none
};

/// What AdaScale needs of a step of B samples: K local gradients g_k of b_k > 0 samples and g = sum_k (b_k / B) g_k.
struct GradientMoments {
  double mean_local_square = 0.0;  // sum_k (b_k / B) |g_k|^2
  double global_square = 0.0;      // |g|^2
  std::int64_t workers = 0;        // K
};

class RateSchedule {
 public:
  RateSchedule() = default;
  /// Throws std::invalid_argument on an option out of range.
  RateSchedule(RateOptions options, std::int64_t global_batch);

  /// For step `step`, counted from 0.
  [[nodiscard]] double factor(std::int64_t step) const;

  /// Feeds AdaScale; the other rules ignore it. Ignored, too: squares that are not finite and positive, and a step of
  /// one worker, which shows no variance.
  void observe(const GradientMoments& moments);

  void exchange(StateExchange& state);

 private:
  RateOptions options_;
  double ratio_ = 1.0;        // k
  double variance_ = 0.0;     // smoothed: gradient variance at the reference batch
  double mean_square_ = 0.0;  // smoothed: squared norm of the true gradient
  std::int64_t observations_ = 0;
};

/// Asynchronous modes: each push carries its own factor, the product of those switched on.
struct PushRate {
  bool by_batch = false;       // b_k K / B: a larger batch is a better gradient
  bool by_batch_sqrt = false;  // sqrt(b_k K / B); not together with by_batch
  bool by_staleness = false;   // 1 / (1 + tau), tau = updates of others since this worker last pulled

  bool operator==(const PushRate&) const = default;
};

inline constexpr Names<PushRate, 6> kPushRateNames{
    {{{}, "none"},
     {{.by_batch = true}, "batch-linear"},
     {{.by_batch_sqrt = true}, "batch-sqrt"},
     {{.by_staleness = true}, "staleness"},
     {{.by_batch = true, .by_staleness = true}, "batch-linear+staleness"},
     {{.by_batch_sqrt = true, .by_staleness = true}, "batch-sqrt+staleness"}}};

/// Throws std::invalid_argument on a rule that contradicts itself.
double push_factor(
    const PushRate& rule, std::int64_t batch, std::int64_t global_batch, std::int64_t workers, std::int64_t staleness);

/// K workers that push on their own add a momentum of 1 - 1 / K to the one that was asked for (Mitliagkas et al. 2016).
/// The one to use so that both together are as asked for: 1 - K (1 - momentum), at least 0.
double asynchronous_momentum(double momentum, std::int64_t workers);

}  // namespace isochron
