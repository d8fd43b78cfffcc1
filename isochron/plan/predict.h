// What a step of B samples takes on a set of machines, by the exact allocator over their time curves.
//
//   step = E[max_k t_k(b_k)] + exchange + max_k u_k
//
// t_k is worker k's curve, and the expectation of the maximum under k's noise is core/predict/speedup.h's. The
// exchange has two parts. Gradients go through every worker's own memory, 2 (K - 1) / K bytes times its time per byte,
// by the slowest, and nothing hides that. On the network they go by sim/ring.h's ring over the slowest link, in
// buckets as large as the engine's, of which `overlap` says how much of what backward could hide it does hide. u_k is
// the optimizer's step. O(K) and a few allocations.
#pragma once

#include <cstdint>
#include <vector>

#include "isochron/core/predict/speedup.h"
#include "isochron/plan/machine.h"

namespace isochron::plan {

struct Exchange {
  double gradient_bytes = 0.0;  // per step, 0 or more
  double overlap = 1.0;         // 0: the ring starts after the last gradient; 1: as buckets fill
  double sent = 1.0;            // the share of the bytes that travels: less if gradients are compressed
};

struct Step {
  std::int64_t global_batch = 0;
  std::vector<std::int64_t> batch_sizes;  // by machine: the groups' one after another
  double compute_seconds = 0.0;           // E[max]
  double exchange_seconds = 0.0;          // through memory, and on the network as far as it is not hidden
  double update_seconds = 0.0;

  [[nodiscard]] double seconds() const { return compute_seconds + exchange_seconds + update_seconds; }
  [[nodiscard]] double samples_per_second() const { return static_cast<double>(global_batch) / seconds(); }
};

/// Throws std::invalid_argument if the machines' bounds cannot hold B.
[[nodiscard]] Step predict_step(
    const std::vector<Group>& groups,
    const Exchange& exchange,
    std::int64_t global_batch,
    Shares shares = Shares::kBest);

/// The prediction for one machine by itself at `batch`: nothing to exchange, nobody to wait for.
[[nodiscard]] double samples_per_second_alone(const Machine& machine, std::int64_t batch);

}  // namespace isochron::plan
