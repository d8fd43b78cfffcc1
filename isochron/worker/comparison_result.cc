#include "isochron/worker/comparison_result.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>

#include "isochron/cli/table.h"
#include "isochron/core/error.h"
#include "isochron/core/predict/expected_max.h"
#include "isochron/core/trace/run_meter.h"
#include "isochron/worker/train_results.h"

namespace isochron::worker {
namespace {

using cli::fixed;

std::int64_t samples_of(const StepRecord& step) {
  std::int64_t samples = 0;
  for (const WorkerStep& worker : step.workers) {
    samples += worker.batch;
  }
  return samples;
}

/// Samples per second if every worker computed all the time; 0 if that was not measured.
double ideal_speed(std::span<const Stage> stages, std::int64_t step) {
  double speed = 0.0;
  for (const Stage& stage : stages) {
    if (stage.first_step <= step) {
      speed = std::accumulate(stage.solo.begin(), stage.solo.end(), 0.0);
    }
  }
  return speed;
}

double ideal_seconds(const LaneLog& log, std::span<const Stage> stages) {
  double seconds = 0.0;
  for (const StepRecord& step : log.steps) {
    seconds += static_cast<double>(samples_of(step)) / ideal_speed(stages, step.step);
  }
  for (std::size_t i = 0; i < log.updates.size(); ++i) {
    seconds += static_cast<double>(log.updates[i].worker.batch) / ideal_speed(stages, log.at[i]);
  }
  return std::isfinite(seconds) ? seconds : 0.0;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return quantile(values, 0.5);
}

/// Of what `field` takes from a result.
template <class Field>
double median_of(std::span<const LaneResult> rounds, Field field) {
  std::vector<double> values;
  std::ranges::transform(
      rounds, std::back_inserter(values), [&](const auto& round) { return std::invoke(field, round); });
  return median_of(std::move(values));
}

/// None unless every round has it.
std::optional<double> median_if_all(std::span<const LaneResult> rounds, std::optional<double> LaneResult::* member) {
  if (!std::ranges::all_of(rounds, [&](const LaneResult& round) { return (round.*member).has_value(); })) {
    return std::nullopt;
  }
  return median_of(rounds, [&](const LaneResult& round) { return *(round.*member); });
}

const LaneResult* find(std::span<const LaneResult> results, std::string_view label) {
  const auto found = std::ranges::find_if(results, [&](const LaneResult& result) { return result.label == label; });
  return found == results.end() ? nullptr : &*found;
}

std::string ratio(double value, const LaneResult* base, double LaneResult::* member) {
  return base == nullptr ? "" : fixed(value / base->*member, 2);
}

std::string cell(const std::optional<double>& value, double scale, int digits) {
  return value ? fixed(scale * *value, digits) : "";
}

}  // namespace

LaneResult make_result(const std::string& label, const LaneLog& log, std::span<const Stage> stages, double target) {
  const auto records = static_cast<double>(log.steps.size() + log.updates.size());
  ISO_CHECK(records > 0, "a lane without steps");
  LaneResult result{.label = label};
  RunMeter meter;
  RunMeter first;
  const auto add = [&](const auto& record) {
    if (meter.steps() == 0) {
      first.add(record);
    }
    meter.add(record);
    result.changes += record.changed ? 1.0 : 0.0;
    result.loss = record.loss;
  };
  std::ranges::for_each(log.steps, add);
  std::ranges::for_each(log.updates, add);
  result.changes /= records;
  result.balance = meter.balance();
  result.utilization = meter.utilization();
  result.step_seconds = meter.step_seconds();
  result.samples_per_second = meter.samples_per_second();
  result.settled_samples_per_second = records > 1
                                          ? (meter.samples() - first.samples()) / (meter.seconds() - first.seconds())
                                          : result.samples_per_second;
  result.share_of_solo = ideal_seconds(log, stages) / meter.seconds();
  result.batch_sizes = log.batch_sizes;
  if (!log.steps.empty()) {
    std::ranges::transform(
        log.steps.back().workers, std::back_inserter(result.batch_sizes), [](const auto& w) { return w.batch; });
  }
  result.staleness = meter.staleness();
  for (const Evaluated& evaluated : log.evaluations) {
    result.test_accuracy = evaluated.accuracy;
    if (target > 0 && evaluated.accuracy >= target && !result.seconds_to_accuracy) {
      result.seconds_to_accuracy = evaluated.seconds;
    }
  }
  return result;
}

std::optional<double> noise_bound(const LaneLog& log, std::span<const Stage> stages) {
  constexpr std::size_t kFewestSteps = 10;
  if (log.steps.size() < kFewestSteps || !log.at.empty() || stages.size() != 1 || stages.front().solo.empty()) {
    return std::nullopt;
  }
  std::vector<double> means;
  std::vector<double> sigmas;
  for (std::size_t k = 0; k < log.steps.front().workers.size(); ++k) {
    double sum = 0.0;
    double squares = 0.0;
    for (const StepRecord& step : log.steps) {
      const double value = std::log(step.workers[k].compute_seconds);
      sum += value;
      squares += value * value;
    }
    const auto count = static_cast<double>(log.steps.size());
    means.push_back(sum / count);
    sigmas.push_back(std::sqrt(std::max(squares / count - means.back() * means.back(), 0.0)));
  }
  const double ideal = static_cast<double>(samples_of(log.steps.front())) / ideal_speed(stages, 0);
  return ideal / expected_max(means, sigmas);
}

LaneResult median(std::span<const LaneResult> rounds) {
  ISO_CHECK(!rounds.empty(), "the median of nothing");
  LaneResult result = rounds.back();
  for (const auto member :
       {&LaneResult::samples_per_second,
        &LaneResult::settled_samples_per_second,
        &LaneResult::balance,
        &LaneResult::utilization,
        &LaneResult::share_of_solo,
        &LaneResult::changes,
        &LaneResult::loss}) {
    result.*member = median_of(rounds, member);
  }
  for (const auto member : {&Quantiles::p50, &Quantiles::p90, &Quantiles::p99, &Quantiles::mean}) {
    result.step_seconds.*member = median_of(rounds, [&](const auto& round) { return round.step_seconds.*member; });
  }
  result.staleness = {};
  for (const LaneResult& round : rounds) {
    for (const auto& [staleness, updates] : round.staleness.updates) {
      result.staleness.updates[staleness] += updates;
    }
  }
  result.test_accuracy = median_if_all(rounds, &LaneResult::test_accuracy);
  result.seconds_to_accuracy = median_if_all(rounds, &LaneResult::seconds_to_accuracy);
  return result;
}

std::string comparison_table(std::span<const LaneResult> results) {
  const LaneResult* const uniform = find(results, "uniform");
  const LaneResult* const oracle = find(results, "oracle");
  std::vector<std::vector<std::string>> rows{
      {"policy",
       "samples/s",
       "p50 ms",
       "p90 ms",
       "balance",
       "utilization",
       "of solo",
       "x uniform",
       "of oracle",
       "accuracy %",
       "s to target"}};
  const bool asynchronous =
      std::ranges::any_of(results, [](const LaneResult& result) { return !result.staleness.updates.empty(); });
  if (asynchronous) {
    rows.front().insert(rows.front().end(), {"staleness", "max"});
  }
  for (const LaneResult& result : results) {
    rows.push_back(
        {result.label,
         fixed(result.samples_per_second, 1),
         fixed(1e3 * result.step_seconds.p50, 0),
         fixed(1e3 * result.step_seconds.p90, 0),
         fixed(result.balance, 3),
         std::isnan(result.utilization) ? "" : fixed(result.utilization, 3),
         fixed(result.share_of_solo, 3),
         ratio(result.samples_per_second, uniform, &LaneResult::samples_per_second),
         ratio(result.settled_samples_per_second, oracle, &LaneResult::settled_samples_per_second),
         cell(result.test_accuracy, 100.0, 1),
         cell(result.seconds_to_accuracy, 1.0, 1)});
    if (asynchronous) {
      rows.back().insert(
          rows.back().end(), {fixed(result.staleness.mean(), 2), std::to_string(result.staleness.max())});
    }
  }
  return cli::format_table(rows);
}

std::string comparison_sentence(std::span<const LaneResult> results, const std::string& cluster) {
  const LaneResult* const uniform = find(results, "uniform");
  const LaneResult* best = find(results, "isochron");
  if (best == nullptr) {
    best = &*std::ranges::max_element(results, {}, &LaneResult::samples_per_second);
  }
  if (uniform == nullptr || uniform == best) {
    return best->label + " trains " + fixed(best->samples_per_second, 0) + " samples a second on " + cluster + ".";
  }
  const double gain = best->samples_per_second / uniform->samples_per_second;
  return "On " + cluster + ", " + best->label + " trains " + fixed(gain, 2) +
         " times as fast as equal batches: " + fixed(best->samples_per_second, 0) + " samples a second instead of " +
         fixed(uniform->samples_per_second, 0) +
         (best->staleness.updates.empty() ? ", with the same gradient."
                                          : ", with updates that are stale by " + fixed(best->staleness.mean(), 2) +
                                                " instead of " + fixed(uniform->staleness.mean(), 2) + " at the mean.");
}

nlohmann::ordered_json to_json(const LaneResult& result) {
  const Quantiles& step = result.step_seconds;
  nlohmann::ordered_json object{
      {"policy", result.label},
      {"samples_per_second", result.samples_per_second},
      {"settled_samples_per_second", result.settled_samples_per_second},
      {"step_seconds", {{"p50", step.p50}, {"p90", step.p90}, {"p99", step.p99}, {"mean", step.mean}}},
      {"balance", result.balance},
      {"utilization", result.utilization},
      {"share_of_solo", result.share_of_solo},
      {"changes", result.changes},
      {"loss", result.loss},
      {"batch_sizes", result.batch_sizes}};
  if (result.test_accuracy) {
    object["test_accuracy"] = *result.test_accuracy;
  }
  if (result.seconds_to_accuracy) {
    object["seconds_to_accuracy"] = *result.seconds_to_accuracy;
  }
  if (!result.staleness.updates.empty()) {
    object["staleness"] = to_json(result.staleness);
  }
  return object;
}

}  // namespace isochron::worker
