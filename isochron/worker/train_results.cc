#include "isochron/worker/train_results.h"

#include <algorithm>
#include <cmath>

#include "isochron/cli/table.h"

namespace isochron::worker {
namespace {

using cli::fixed;
using Json = nlohmann::ordered_json;

Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string known(double value, int digits) {
  return std::isnan(value) ? "-" : fixed(value, digits);
}

}  // namespace

std::optional<double> TrainResults::test_accuracy() const {
  return evaluations.empty() ? std::nullopt : std::optional(evaluations.back().evaluation.accuracy);
}

std::optional<double> TrainResults::seconds_to_accuracy() const {
  for (const Point& point : evaluations) {
    if (target_accuracy > 0.0 && point.evaluation.accuracy >= target_accuracy) {
      return point.seconds;
    }
  }
  return std::nullopt;
}

Json to_json(const StalenessCount& staleness) {
  constexpr std::int64_t kMostEntries = 256;
  std::vector<std::int64_t> histogram(static_cast<std::size_t>(std::min(staleness.max(), kMostEntries - 1) + 1));
  for (const auto& [value, updates] : staleness.updates) {
    histogram[static_cast<std::size_t>(std::min(value, kMostEntries - 1))] += updates;
  }
  return {
      {"updates", staleness.total()}, {"mean", staleness.mean()}, {"max", staleness.max()}, {"histogram", histogram}};
}

std::string staleness_text(const StalenessCount& staleness) {
  constexpr std::size_t kMostShown = 12;
  std::string text =
      "mean " + fixed(staleness.mean(), 2) + ", max " + std::to_string(staleness.max()) + "; updates by staleness:";
  std::size_t shown = 0;
  for (const auto& [value, updates] : staleness.updates) {
    if (++shown > kMostShown) {
      return text + " ...";
    }
    text += (shown > 1 ? ", " : " ") + std::to_string(value) + ": " + std::to_string(updates);
  }
  return text;
}

std::string summary(const TrainResults& results) {
  const Quantiles step = results.meter.step_seconds();
  const auto accuracy = results.test_accuracy();
  std::string text = cli::format_table(
      {{"policy", "steps", "samples/s", "step p50", "p90", "p99", "balance", "utilization", "loss", "accuracy"},
       {results.policy,
        std::to_string(results.meter.steps()),
        known(results.meter.samples_per_second(), 1),
        fixed(step.p50, 4) + " s",
        fixed(step.p90, 4) + " s",
        fixed(step.p99, 4) + " s",
        known(results.meter.balance(), 3),
        known(results.meter.utilization(), 3),
        fixed(results.loss, 4),
        accuracy ? fixed(*accuracy, 4) : "-"}});
  text += "batch sizes in the end:";
  for (const std::int64_t size : results.batch_sizes) {
    text += " " + std::to_string(size);
  }
  if (const StalenessCount& staleness = results.meter.staleness(); !staleness.updates.empty()) {
    text += "\nstaleness: " + staleness_text(staleness) + "\npushes: " + std::to_string(results.pushes.sent) +
            " sent, " + std::to_string(results.pushes.applied) + " applied";
  }
  if (const auto seconds = results.seconds_to_accuracy()) {
    text +=
        "\naccuracy " + fixed(results.target_accuracy, 4) + " reached after " + fixed(*seconds, 1) + " s of training";
  }
  return text + "\n";
}

Json to_json(const TrainResults& results) {
  const Quantiles step = results.meter.step_seconds();
  Json evaluations = Json::array();
  for (const TrainResults::Point& point : results.evaluations) {
    evaluations.push_back(
        {{"step", point.step},
         {"seconds", point.seconds},
         {"accuracy", point.evaluation.accuracy},
         {"loss", point.evaluation.loss}});
  }
  Json object{
      {"policy", results.policy},
      {"samples_per_second", results.meter.samples_per_second()},
      {"step_seconds", {{"p50", step.p50}, {"p90", step.p90}, {"p99", step.p99}, {"mean", step.mean}}},
      {"steps", results.meter.steps()},
      {"total_seconds", results.meter.seconds()},
      {"balance", results.meter.balance()},
      {"utilization", results.meter.utilization()},
      {"batch_sizes", results.batch_sizes},
      {"loss", results.loss},
      {"test_accuracy", or_null(results.test_accuracy())},
      {"seconds_to_accuracy", or_null(results.seconds_to_accuracy())},
      {"evaluations", evaluations}};
  if (const StalenessCount& staleness = results.meter.staleness(); !staleness.updates.empty()) {
    object["staleness"] = to_json(staleness);
    object["pushes"] = {{"sent", results.pushes.sent}, {"applied", results.pushes.applied}};
  }
  return object;
}

}  // namespace isochron::worker
