#include "isochron/sim/simulate.h"

#include <cmath>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "isochron/core/sample/interval.h"
#include "isochron/sim/run.h"

namespace isochron::sim {
namespace {

template <class Value>
void require(bool holds, std::string_view field, Value value, std::string_view permitted) {
  if (!holds) {
    std::ostringstream text;
    text << field << " is " << value << "; permitted: " << permitted;
    throw std::invalid_argument(text.str());
  }
}

void not_negative(std::string_view field, double value) {
  require(std::isfinite(value) && value >= 0.0, field, value, "a finite number, 0 or more");
}

}  // namespace

void Options::validate() const {
  require(global_batch >= 1, "global batch", global_batch, "1 or more");
  require(steps >= 1, "steps", steps, "1 or more");
  require(staleness >= 0, "staleness", staleness, "0 or more");
  require(round_steps >= 0, "round steps", round_steps, "0 or more");
  require(network_share > 0.0 && network_share < 1.0, "network share", network_share, "above 0 and below 1");
  not_negative("gradient bytes", network.gradient_bytes);
  require(network.buckets >= 1, "buckets", network.buckets, "1 or more");
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
