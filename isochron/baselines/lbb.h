// LBB: load-balanced batching for synchronous SGD on unequal machines (Journal of Supercomputing, 2024).
//
//   a) Profile: times for batches of 1, 2, 4, 8, ... samples. Training goes on meanwhile and every step must deal out
//      exactly B, so the workers take turns: those in even places get the small batch while the others share the rest
//      equally, then the other way round; the powers go up to what lets the small side fit into B.
//   b) A cubic fit of time over batch for every worker, and the exact integer split for these curves.
//   c) From then on, by SE = (max t - min t) / mean t: below 0.05 nothing, below 0.3 one unit moves from the slowest to
//      the fastest worker, otherwise the fits are renewed and the split solved again. A renewed fit takes a change of
//      speed to stretch the whole curve: old points are scaled until they agree with the newest time.
// O(K) a step; a solution costs K fits and one allocation over tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isochron/baselines/time_profile.h"
#include "isochron/core/options.h"
#include "isochron/core/policy/policy.h"

namespace isochron {

struct LbbOptions {
  double quiet = 0.05;  // SE below which nothing moves, 0..1
  double refit = 0.3;   // SE from which the fits are renewed; at least `quiet` to have an effect

  void describe(OptionTable& table);
};

class LbbPolicy final : public Policy {
 public:
  explicit LbbPolicy(LbbOptions options) : options_(options) {}

  Proposal start(const Roster& roster, std::span<const std::int64_t> current) override;
  Proposal observe(
      const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current) override;
  void exchange(StateExchange& state) override;

 private:
  [[nodiscard]] Proposal probe(const Roster& roster, Reason reason) const;
  [[nodiscard]] Proposal solve(const Roster& roster, Reason reason, std::string words) const;
  Proposal follow_profile(const Roster& roster, std::span<const Reading> readings);
  Proposal follow_spread(
      const Roster& roster, std::span<const Reading> readings, std::span<const std::int64_t> current);

  LbbOptions options_;
  std::int64_t probes_left_ = 0;  // steps of the profile still to come
  std::vector<WorkerId> ids_;
  std::vector<TimeProfile> profiles_;  // one per worker
};

}  // namespace isochron
