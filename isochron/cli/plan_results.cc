#include "isochron/cli/plan_results.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>

#include "isochron/cli/table.h"

namespace isochron::cli {
namespace {

using plan::Alternative;
using plan::Group;
using plan::Step;

constexpr double kNearBest = 0.95;
constexpr double kSecondsPerHour = 3600.0;

double seconds_per_epoch(const PlanTask& task, const Step& step) {
  return static_cast<double>(task.dataset_size) / step.samples_per_second();
}

std::int64_t steps_per_epoch(const PlanTask& task, const Step& step) {
  return (task.dataset_size + step.global_batch - 1) / step.global_batch;
}

bool has_prices(const PlanTask& task) {
  return plan::price_per_hour(task.groups) > 0.0;
}

/// The cost of an epoch.
double cost(const PlanTask& task, const Step& step, double price_per_hour) {
  return price_per_hour * seconds_per_epoch(task, step) / kSecondsPerHour;
}

/// "41 s", "3.4 min", "12.1 h"
std::string duration(double seconds) {
  constexpr double kMinute = 60.0;
  if (seconds < 2.0 * kMinute) {
    return fixed(seconds, seconds < 10.0 ? 2 : 0) + " s";
  }
  return seconds < 2.0 * kSecondsPerHour ? fixed(seconds / kMinute, 1) + " min"
                                         : fixed(seconds / kSecondsPerHour, 1) + " h";
}

/// Three digits that count, since prices of an epoch may be tiny.
std::string money(double amount) {
  if (amount <= 0.0) {
    return "0";
  }
  return fixed(amount, std::clamp(2 - static_cast<int>(std::floor(std::log10(amount))), 2, 8));
}

std::string signed_percent(double ratio) {
  return (ratio >= 1.0 ? "+" : "") + fixed(100.0 * (ratio - 1.0), 1) + " %";
}

/// "96", or "96-98" if machines of a group differ.
std::string batch_text(std::span<const std::int64_t> batches) {
  const auto [least, most] = std::ranges::minmax(batches);
  return std::to_string(least) + (least == most ? "" : "-" + std::to_string(most));
}

std::string change_text(const std::optional<Alternative>& alternative, const Step& now) {
  return alternative ? signed_percent(alternative->step.samples_per_second() / now.samples_per_second())
                     : "not possible";
}

std::string cost_change_text(const PlanTask& task, const std::optional<Alternative>& alternative, double now) {
  return alternative ? signed_percent(cost(task, alternative->step, alternative->price_per_hour) / now) : "";
}

std::string machines_table(const PlanTask& task, const PlanResults& results) {
  const bool priced = has_prices(task) && task.dataset_size > 0;
  std::vector<std::string> head{
      "machine", "count", "batch", "share", "alone/s", "rate if one less", "rate if one more"};
  if (priced) {
    head.insert(head.end(), {"cost if one less", "cost if one more"});
  }
  std::vector<std::vector<std::string>> rows{head};
  const double now = priced ? cost(task, results.best, plan::price_per_hour(task.groups)) : 0.0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < task.groups.size(); ++i) {
    const Group& group = task.groups[i];
    const auto batches = std::span(results.best.batch_sizes).subspan(first, static_cast<std::size_t>(group.count));
    first += batches.size();
    std::int64_t sum = 0;
    for (const std::int64_t batch : batches) {
      sum += batch;
    }
    const std::int64_t typical = std::max<std::int64_t>(batches.front(), 1);
    std::vector<std::string> row{
        group.machine.name,
        std::to_string(group.count),
        batch_text(batches),
        fixed(100.0 * static_cast<double>(sum) / static_cast<double>(results.best.global_batch), 1) + " %",
        fixed(plan::samples_per_second_alone(group.machine, typical), 1),
        change_text(results.marginals[i].dropped, results.best),
        change_text(results.marginals[i].added, results.best)};
    if (priced) {
      row.push_back(cost_change_text(task, results.marginals[i].dropped, now));
      row.push_back(cost_change_text(task, results.marginals[i].added, now));
    }
    rows.push_back(std::move(row));
  }
  return format_table(rows);
}

std::string sweep_table(const PlanTask& task, const PlanResults& results) {
  const bool sized = task.dataset_size > 0;
  std::vector<std::string> head{"global batch", "samples/s", "of highest", "step ms"};
  if (sized) {
    head.insert(head.end(), {"steps/epoch", "epoch"});
  }
  std::vector<std::vector<std::string>> rows{head};
  const double highest = std::ranges::max(results.sweep, {}, &Step::samples_per_second).samples_per_second();
  for (const Step& step : results.sweep) {
    std::vector<std::string> row{
        std::to_string(step.global_batch),
        fixed(step.samples_per_second(), 1),
        fixed(100.0 * step.samples_per_second() / highest, 1) + " %",
        fixed(1e3 * step.seconds(), 1)};
    if (sized) {
      row.push_back(std::to_string(steps_per_epoch(task, step)));
      row.push_back(duration(seconds_per_epoch(task, step)));
    }
    rows.push_back(std::move(row));
  }
  return format_table(rows);
}

std::string search_sentence(const PlanResults& results) {
  const std::string batch = std::to_string(results.best.global_batch);
  return "Global batch " + batch +
         " is the smallest within 5 % of the highest rate. Every doubling halves the steps of an epoch: if\n"
         "learning needs the steps, take a smaller one, or scale the learning rate (--lr-rule of 'isochron train').\n";
}

std::string time_sentence(const PlanTask& task, const PlanResults& results) {
  if (task.dataset_size == 0) {
    return "";
  }
  const double seconds = static_cast<double>(task.epochs) * seconds_per_epoch(task, results.best);
  std::string text = (task.epochs == 1 ? "An epoch of " : std::to_string(task.epochs) + " epochs of ") +
                     std::to_string(task.dataset_size) + " samples: " + duration(seconds) + ", " +
                     std::to_string(task.epochs * steps_per_epoch(task, results.best)) + " steps";
  if (has_prices(task)) {
    text += ", cost " +
            money(static_cast<double>(task.epochs) * cost(task, results.best, plan::price_per_hour(task.groups)));
  }
  return text + ".\n";
}

/// Times that vary as no machine at rest lets them: p90 beyond 1.6 times p50.
std::string noise_sentence(const PlanTask& task) {
  constexpr double kMuch = 0.4;
  const auto noisy = std::ranges::find_if(task.groups, [](const Group& group) { return group.machine.noise > kMuch; });
  if (noisy == task.groups.end()) {
    return "";
  }
  return "Uncertain: the times of " + noisy->machine.name +
         " vary widely. Measure again while nothing else runs there.\n";
}

/// A machine that would go beyond what was measured.
std::string doubt_sentence(const PlanTask& task, const Step& step) {
  std::size_t k = 0;
  for (const Group& group : task.groups) {
    for (std::int64_t i = 0; i < group.count; ++i, ++k) {
      if (step.batch_sizes[k] > group.machine.measured) {
        return "Beyond what was measured: " + group.machine.name + " would take " +
               std::to_string(step.batch_sizes[k]) + " samples, its profile ends at " +
               std::to_string(group.machine.measured) + ".\n";
      }
    }
  }
  return "";
}

/// What every machine is worth, in words, where that is not plain "more is faster".
std::string marginal_sentences(const PlanTask& task, const PlanResults& results) {
  std::string text;
  const bool priced = has_prices(task) && task.dataset_size > 0;
  const double now = priced ? cost(task, results.best, plan::price_per_hour(task.groups)) : 0.0;
  for (std::size_t i = 0; i < task.groups.size(); ++i) {
    const auto& dropped = results.marginals[i].dropped;
    const std::string& name = task.groups[i].machine.name;
    if (!dropped) {
      continue;
    }
    if (dropped->step.samples_per_second() > results.best.samples_per_second()) {
      text += "Drop one " + name + ": the rest is faster without it.\n";
    } else if (priced && cost(task, dropped->step, dropped->price_per_hour) < now) {
      text += "One " + name + " less is slower and cheaper: it costs more than it brings.\n";
    }
  }
  return text;
}

/// Nothing where all samples cost the same.
std::string lengths_table(const PlanResults& results) {
  if (!results.lengths) {
    return "";
  }
  const plan::LengthForecast& forecast = *results.lengths;
  std::vector<std::vector<std::string>> rows{{"samples of unequal length", "samples/s", "step ms", "padding"}};
  const auto add = [&](const char* name, const plan::LengthForecast::Deal& deal) {
    rows.push_back(
        {name,
         fixed(deal.samples_per_second, 1),
         fixed(1e3 * deal.step_seconds, 1),
         fixed(100.0 * deal.padding, 1) + " %"});
  };
  add("dealt by cost", forecast.by_cost);
  add("by count", forecast.by_count);
  add("in equal shares", forecast.equal);
  return '\n' + format_table(rows) +
         "Dealt by cost: " + fixed(forecast.by_cost.samples_per_second / forecast.by_count.samples_per_second, 2) +
         "x by count, " + fixed(forecast.by_cost.samples_per_second / forecast.equal.samples_per_second, 2) +
         "x equal shares.\n";
}

/// Nothing where the exchange hardly matters.
std::string modes_table(const PlanResults& results) {
  constexpr double kMatters = 0.05;
  if (results.modes.empty() || results.modes.front().exchange_share < kMatters) {
    return "";
  }
  std::vector<std::vector<std::string>> rows{{"over this network", "samples/s", "exchanging", "round"}};
  for (const plan::Mode& mode : results.modes) {
    rows.push_back(
        {mode.options,
         fixed(mode.samples_per_second, 1),
         fixed(100.0 * mode.exchange_share, 1) + " %",
         mode.round_steps > 1 ? std::to_string(mode.round_steps) + " steps" : ""});
  }
  const plan::Mode& least = plan::least_near_best(results.modes);
  return '\n' + format_table(rows) + "Take " + least.options +
         ": of those within 10 % of the fastest it changes training least (docs/local.md).\n";
}

nlohmann::ordered_json modes_json(const PlanResults& results) {
  nlohmann::ordered_json modes = nlohmann::ordered_json::array();
  for (const plan::Mode& mode : results.modes) {
    modes.push_back(
        {{"options", mode.options},
         {"samples_per_second", mode.samples_per_second},
         {"exchange_share", mode.exchange_share},
         {"round_steps", mode.round_steps},
         {"advised", &mode == &plan::least_near_best(results.modes)}});
  }
  return modes;
}

nlohmann::ordered_json lengths_json(const plan::LengthForecast::Deal& deal) {
  return {
      {"samples_per_second", deal.samples_per_second}, {"step_seconds", deal.step_seconds}, {"padding", deal.padding}};
}

nlohmann::ordered_json step_json(const PlanTask& task, const Step& step) {
  nlohmann::ordered_json object{
      {"global_batch", step.global_batch},
      {"samples_per_second", step.samples_per_second()},
      {"step_seconds",
       {{"mean", step.seconds()},
        {"compute", step.compute_seconds},
        {"exchange", step.exchange_seconds},
        {"update", step.update_seconds}}}};
  if (task.dataset_size > 0) {
    object["steps_per_epoch"] = steps_per_epoch(task, step);
    object["seconds_per_epoch"] = seconds_per_epoch(task, step);
  }
  return object;
}

nlohmann::ordered_json alternative_json(const PlanTask& task, const std::optional<Alternative>& alternative) {
  if (!alternative) {
    return nullptr;
  }
  nlohmann::ordered_json object{{"samples_per_second", alternative->step.samples_per_second()}};
  if (task.dataset_size > 0) {
    object["cost_per_epoch"] = cost(task, alternative->step, alternative->price_per_hour);
  }
  return object;
}

}  // namespace

PlanResults make_plan(const PlanTask& task) {
  PlanResults results;
  if (task.global_batch) {
    try {
      results.best = plan::predict_step(task.groups, task.exchange, *task.global_batch);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("--global-batch: " + std::string(error.what()));
    }
  } else {
    results.sweep = plan::sweep(task.groups, task.exchange, task.dataset_size > 0 ? task.dataset_size : kNoLimit);
    results.best = plan::smallest_near_best(results.sweep, kNearBest);
  }
  const std::int64_t batch = results.best.global_batch;
  results.uniform = plan::predict_step(task.groups, task.exchange, batch, Shares::kEqual);
  results.marginals = plan::marginals(task.groups, task.exchange, batch);
  if (task.exchange.gradient_bytes > 0.0 && results.best.batch_sizes.size() > 1) {
    results.modes = plan::predict_modes(task.groups, task.exchange, batch);
  }
  if (task.lengths) {
    results.lengths = plan::forecast_lengths(task.groups, results.best, results.uniform, *task.lengths);
  }
  return results;
}

std::string to_text(const PlanTask& task, const PlanResults& results) {
  const std::int64_t count = plan::count_machines(task.groups);
  const Step& best = results.best;
  std::string text = task.title + ": " + std::to_string(count) + (count == 1 ? " machine" : " machines") + ", " +
                     (task.model.empty() ? "" : task.model + " on " + task.dataset + ", ") + "global batch " +
                     std::to_string(best.global_batch) + "\n\n";
  text += machines_table(task, results) + '\n';
  if (!results.sweep.empty()) {
    text += sweep_table(task, results) + '\n' + search_sentence(results) + '\n';
  }
  text += "A step takes " + fixed(1e3 * best.seconds(), 1) + " ms: " + fixed(1e3 * best.compute_seconds, 1) +
          " to compute, " + fixed(1e3 * best.exchange_seconds, 1) + " to exchange, " +
          fixed(1e3 * best.update_seconds, 1) + " to update.\n";
  text += doubt_sentence(task, best);
  text += noise_sentence(task);
  text += time_sentence(task, results);
  text += marginal_sentences(task, results);
  text += fixed(best.samples_per_second(), 1) + " samples per second, " +
          fixed(best.samples_per_second() / results.uniform.samples_per_second(), 2) + "x those of equal shares.\n";
  return text + modes_table(results) + lengths_table(results);
}

nlohmann::ordered_json plan_details(const PlanTask& task, const PlanResults& results) {
  nlohmann::ordered_json details{
      {"machines_file", task.title},
      {"model", task.model},
      {"dataset", task.dataset},
      {"dataset_size", task.dataset_size},
      {"epochs", task.epochs},
      {"workers", plan::count_machines(task.groups)},
      {"gradient_bytes", task.exchange.gradient_bytes},
      {"overlap", task.exchange.overlap},
      {"price_per_hour", plan::price_per_hour(task.groups)}};
  for (std::size_t i = 0; i < task.groups.size(); ++i) {
    const plan::Machine& machine = task.groups[i].machine;
    details["machines"].push_back(
        {{"machine", machine.name},
         {"count", task.groups[i].count},
         {"price_per_hour", machine.price_per_hour},
         {"noise", machine.noise},
         {"without_one", alternative_json(task, results.marginals[i].dropped)},
         {"one_more", alternative_json(task, results.marginals[i].added)}});
  }
  details["modes"] = modes_json(results);
  if (results.lengths) {
    details["lengths"] = {
        {"by_cost", lengths_json(results.lengths->by_cost)},
        {"by_count", lengths_json(results.lengths->by_count)},
        {"equal", lengths_json(results.lengths->equal)}};
  }
  for (const Step& step : results.sweep) {
    details["search"].push_back(step_json(task, step));
  }
  return details;
}

nlohmann::ordered_json plan_documents(const PlanTask& task, const PlanResults& results) {
  nlohmann::ordered_json documents = nlohmann::ordered_json::array();
  const auto add = [&](const char* policy, const Step& step) {
    nlohmann::ordered_json document{{"policy", policy}};
    document.update(step_json(task, step));
    if (task.dataset_size > 0) {
      document["total_seconds"] = static_cast<double>(task.epochs) * seconds_per_epoch(task, step);
      document["cost"] = static_cast<double>(task.epochs) * cost(task, step, plan::price_per_hour(task.groups));
    }
    document["batch_sizes"] = step.batch_sizes;
    documents.push_back(std::move(document));
  };
  add("isochron", results.best);
  add("uniform", results.uniform);
  return documents;
}

}  // namespace isochron::cli
