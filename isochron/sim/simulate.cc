#include "isochron/sim/simulate.h"

#include <cmath>
#include <limits>
#include <string_view>

#include "isochron/core/error.h"
#include "isochron/core/sample/interval.h"
#include "isochron/sim/run.h"

namespace isochron::sim {
namespace {

void not_negative(std::string_view field, double value) {
  require(std::isfinite(value) && value >= 0.0, field, value, "a finite number, 0 or more");
}

}  // namespace

void Options::validate() const {
  require_between("global batch", global_batch, 1, std::numeric_limits<std::int32_t>::max());
  require_at_least("steps", steps, 1);
  require_at_least("staleness", staleness, 0);
  require_at_least("round steps", round_steps, 0);
  require(network_share > 0.0 && network_share < 1.0, "network share", network_share, "above 0 and below 1");
  not_negative("gradient bytes", network.gradient_bytes);
  require_at_least("buckets", network.buckets, 1);
  not_negative("failure seconds", failure_seconds);
  if (lengths) {
    lengths->validate();
    require(sync == Sync::kBsp, "sync", to_string(sync), "bsp, since samples have lengths");
  }
}

std::int64_t Options::samples() const {
  const bool countable = global_batch <= kMostPositions / steps;
  return in_step(sync) && countable ? global_batch * steps : 0;
}

Result simulate(
    const ClusterSpec& cluster, const Options& options, const std::string& policy, const Recorder& recorder) {
  cluster.validate();
  options.validate();
  Run run(cluster, options, policy, recorder);
  if (in_step(options.sync)) {
    run_bsp(run);
  } else {
    run_async(run);
  }
  Result result = run.meter.result();
  result.policy = policy;
  return result;
}

double time_over(const Result& result, const Result& oracle) {
  const auto without_first = [](const Result& of) { return of.total_seconds - of.first_step_seconds; };
  return result.steps > 1 ? without_first(result) / without_first(oracle) : 1.0;
}

std::vector<Result> compare(
    const ClusterSpec& cluster, const Options& options, const std::vector<std::string>& policies) {
  const Result oracle = simulate(cluster, options, "oracle");
  std::vector<Result> results;
  for (const std::string& policy : policies) {
    results.push_back(policy == "oracle" ? oracle : simulate(cluster, options, policy));
    results.back().time_over_oracle = time_over(results.back(), oracle);
  }
  return results;
}

}  // namespace isochron::sim
