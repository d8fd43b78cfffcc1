#include "isochron/view/headline.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace isochron::view {
namespace {

constexpr std::string_view kUniform = "uniform";

bool runs_policy(const NamedRun& run, std::string_view policy) {
  const std::string& name = run.view->header().policy;
  return name == policy || name.starts_with(std::string(policy) + ":") || name.starts_with(std::string(policy) + "+");
}

std::string subject(const NamedRun& run) {
  return in_words(run.name) + (run.name == kUniform ? " do " : " does ");
}

double speed(const NamedRun& run) {
  const double samples = run.view->summary().samples_per_second;
  return std::isnan(samples) ? 0.0 : samples;
}

std::string place(const RunView& view) {
  const std::size_t workers = view.workers().size() + view.workers_left_out();
  const std::string count = grouped(static_cast<double>(workers), 0) + (workers == 1 ? " worker" : " workers");
  return view.header().cluster.empty() ? "on " + count : "on " + view.header().cluster + " (" + count + ")";
}

std::string describe(const NamedRun& run) {
  if (!run.view->forecast().empty()) {
    return run.view->forecast();
  }
  const Summary summary = run.view->summary();
  std::string text = subject(run) + grouped(summary.samples_per_second, 1) + " samples per second " + place(*run.view) +
                     " over " + grouped(static_cast<double>(summary.steps), 0) + " steps";
  if (!std::isnan(summary.balance)) {
    text += "; on average a worker waits " + grouped(100.0 * (1.0 - summary.balance), 0) +
            " % of a step for the slowest one";
  }
  if (const std::string gain = gain_in_words(summary); !gain.empty()) {
    text += "; " + gain;
  }
  return text + ".";
}

}  // namespace

std::string in_words(const std::string& policy) {
  return policy == kUniform ? "equal batches" : policy;
}

std::string gain_in_words(const Summary& summary) {
  if (summary.over_equal_shares >= kWorthAWord) {
    return "in its last steps about " + grouped(summary.over_equal_shares, 1) + " times as fast as with equal shares";
  }
  if (summary.best_over_now >= kWorthAWord) {
    return "shares that fit the workers would make it about " + grouped(summary.best_over_now, 1) + " times as fast";
  }
  return "";
}

std::string headline(const std::vector<NamedRun>& runs) {
  if (runs.empty()) {
    return "";
  }
  const auto of_policy = [&](std::string_view policy) {
    return std::ranges::find_if(runs, [&](const NamedRun& run) { return runs_policy(run, policy); });
  };
  auto best = of_policy("isochron");
  if (best == runs.end()) {
    best = std::ranges::max_element(runs, {}, speed);
  }
  auto base = of_policy(kUniform);
  if (base == runs.end() || base == best) {
    base = std::ranges::min_element(runs, {}, speed);
  }
  if (base == best || !(speed(*base) > 0.0)) {
    return describe(*best);
  }
  return subject(*best) + grouped(speed(*best) / speed(*base), 2) + " times the samples per second of " +
         in_words(base->name) + " " + place(*best->view) + ": " + grouped(speed(*best), 1) + " instead of " +
         grouped(speed(*base), 1) + " over the whole run.";
}

std::string grouped(double value, int digits) {
  if (!std::isfinite(value)) {
    return "unknown";
  }
  char buffer[400];  // the largest double has 309 digits before the point
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, digits).ptr);
  const std::size_t point = std::min(text.find('.'), text.size());
  const std::size_t first = text.starts_with('-') ? 1 : 0;
  for (std::size_t at = point; at > first + 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

}  // namespace isochron::view
