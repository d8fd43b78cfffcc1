#include "isochron/cli/results.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "isochron/cli/table.h"

namespace isochron::cli {
namespace {

using sim::Result;

bool is_policy(const Result& result, std::string_view name) {
  return result.policy == name || result.policy.starts_with(std::string(name) + ":");
}

std::string per_cent(double share) {
  return fixed(100.0 * share, 1) + " %";
}

std::vector<std::string> bsp_cells(const Result& result) {
  return {result.steps_to_balance < result.steps ? std::to_string(result.steps_to_balance) : "never"};
}

std::vector<std::string> async_cells(const Result& result) {
  return {fixed(result.mean_staleness, 2), std::to_string(result.max_staleness)};
}

std::vector<std::string> row(const Result& result, Sync sync) {
  std::vector<std::string> cells{
      result.policy,
      fixed(1e3 * result.step_seconds.p50, 1),
      fixed(1e3 * result.step_seconds.p99, 1),
      fixed(result.samples_per_second, 1),
      fixed(result.balance, 3),
      fixed(result.share_of_peak, 3),
      (result.time_over_oracle >= 1.0 ? "+" : "") + per_cent(result.time_over_oracle - 1.0),
      std::to_string(result.adjustments)};
  const std::vector<std::string> more = in_step(sync) ? bsp_cells(result) : async_cells(result);
  cells.insert(cells.end(), more.begin(), more.end());
  return cells;
}

std::string distance_to_oracle(const Result& result) {
  const double over = result.time_over_oracle - 1.0;
  return per_cent(std::abs(over)) +
         (over < -0.0005 ? " ahead of the oracle, which knows all speeds but not the noise" : " from the oracle");
}

}  // namespace

std::string results_table(const std::vector<Result>& results, Sync sync) {
  std::vector<std::string> head{
      "policy", "p50 ms", "p99 ms", "samples/s", "balance", "of peak", "over oracle", "adjustments"};
  if (in_step(sync)) {
    head.emplace_back("steps to balance");
  } else {
    head.insert(head.end(), {"mean staleness", "max"});
  }
  std::vector<std::vector<std::string>> rows{head};
  for (const Result& result : results) {
    rows.push_back(row(result, sync));
  }
  return format_table(rows);
}

std::string modes_table(const std::vector<Result>& results) {
  std::vector<std::vector<std::string>> rows{{"policy", "samples/s", "balance", "of peak", "mean staleness"}};
  for (const Result& result : results) {
    rows.push_back(
        {result.policy,
         fixed(result.samples_per_second, 1),
         fixed(result.balance, 3),
         fixed(result.share_of_peak, 3),
         fixed(result.mean_staleness, 2)});
  }
  return format_table(rows);
}

std::string modes_sentence(const std::vector<Result>& results, std::size_t policies) {
  constexpr double kWorthOtherSteps = 1.05;
  // The oracle is nobody's to take.
  const auto speed = [](const Result& result) {
    return result.policy.find("oracle") == std::string::npos ? result.samples_per_second : 0.0;
  };
  const auto best = std::ranges::max_element(results, {}, speed);
  const auto bsp = std::span(results).first(policies);
  const auto best_bsp = std::ranges::max_element(bsp, {}, speed);
  if (!(speed(*best_bsp) > 0.0)) {
    return "Only the oracle was simulated, which nobody can take.";
  }
  const double gain = best->samples_per_second / best_bsp->samples_per_second;
  if (gain < kWorthOtherSteps) {
    return "Take " + best_bsp->policy +
           ": nothing here is more than 5 % faster, and its steps are those of one big batch.";
  }
  return best->policy + " does " + fixed(gain, 2) + "x the samples per second of " + best_bsp->policy +
         ". Only the steps of bsp are those of one big batch: local averages what several local steps have changed, "
         "asp and "
         "ssp use gradients that are stale.";
}

std::string gain_sentence(const std::vector<Result>& results) {
  auto best = std::ranges::find_if(results, [](const Result& result) { return is_policy(result, "isochron"); });
  if (best == results.end()) {
    best = std::ranges::max_element(results, {}, &Result::samples_per_second);
  }
  auto base = std::ranges::find_if(results, [](const Result& result) { return is_policy(result, "uniform"); });
  if (base == results.end() || base == best) {
    base = std::ranges::min_element(results, {}, &Result::samples_per_second);
  }
  if (base == best) {
    return best->policy + " does " + fixed(best->samples_per_second, 1) + " samples per second, " +
           distance_to_oracle(*best) + ".";
  }
  return best->policy + " does " + fixed(best->samples_per_second / base->samples_per_second, 2) +
         "x the samples per second of " + base->policy + ", " + distance_to_oracle(*best) + ".";
}

nlohmann::ordered_json to_json(const Result& result, Sync sync) {
  const Quantiles& step = result.step_seconds;
  nlohmann::ordered_json object{
      {"policy", result.policy},
      {"samples_per_second", result.samples_per_second},
      {"step_seconds", {{"p50", step.p50}, {"p90", step.p90}, {"p99", step.p99}, {"mean", step.mean}}},
      {"total_seconds", result.total_seconds},
      {"balance", result.balance},
      {"share_of_peak", result.share_of_peak},
      {"time_over_oracle", result.time_over_oracle},
      {"adjustments", result.adjustments},
      {"steps_to_balance", result.steps_to_balance},
      {"speed_changes", result.speed_changes},
      {"recovery_steps", {{"p50", result.recovery_steps_p50}, {"p90", result.recovery_steps_p90}}},
      {"batch_sizes", result.batch_sizes}};
  if (!in_step(sync)) {
    object["staleness"] = {{"mean", result.mean_staleness}, {"max", result.max_staleness}};
    object["max_lead"] = result.max_lead;
  }
  return object;
}

}  // namespace isochron::cli
