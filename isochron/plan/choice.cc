#include "isochron/plan/choice.h"

#include <algorithm>
#include <stdexcept>

#include "isochron/core/allocate/allocate.h"

namespace isochron::plan {
namespace {

/// Nothing if the bounds cannot hold the batch.
std::optional<Step> try_step(const std::vector<Group>& groups, const Exchange& exchange, std::int64_t global_batch) {
  try {
    return predict_step(groups, exchange, global_batch);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

bool is_measured(const std::vector<Group>& groups, const Step& step) {
  auto batch = step.batch_sizes.begin();
  for (const Group& group : groups) {
    for (std::int64_t i = 0; i < group.count; ++i) {
      if (*batch++ > group.machine.measured) {
        return false;
      }
    }
  }
  return true;
}

std::optional<Alternative> with_count(
    std::vector<Group> groups,
    std::size_t changed,
    std::int64_t count,
    const Exchange& exchange,
    std::int64_t global_batch) {
  groups[changed].count = count;
  if (count_machines(groups) == 0) {
    return std::nullopt;
  }
  std::optional<Step> step = try_step(groups, exchange, global_batch);
  if (!step) {
    return std::nullopt;
  }
  return Alternative{.step = std::move(*step), .price_per_hour = price_per_hour(groups)};
}

}  // namespace

std::vector<Step> sweep(const std::vector<Group>& groups, const Exchange& exchange, std::int64_t most) {
  std::vector<Step> steps;
  for (std::int64_t batch = 1; batch <= std::min(most, kMaxGlobalBatch); batch *= 2) {
    if (batch < count_machines(groups)) {
      continue;  // not even a sample for each
    }
    std::optional<Step> step = try_step(groups, exchange, batch);
    if (!step) {
      if (!steps.empty()) {
        break;
      }
      continue;
    }
    if (!steps.empty() && !is_measured(groups, *step)) {
      break;
    }
    steps.push_back(std::move(*step));
  }
  if (steps.empty()) {
    throw std::invalid_argument(
        "no power of two up to " + std::to_string(most) +
        " fits the machines; permitted: bounds that hold one, or --global-batch");
  }
  return steps;
}

const Step& smallest_near_best(const std::vector<Step>& steps, double share) {
  const double best = std::ranges::max(steps, {}, &Step::samples_per_second).samples_per_second();
  return *std::ranges::find_if(steps, [&](const Step& step) { return step.samples_per_second() >= share * best; });
}

double price_per_hour(const std::vector<Group>& groups) {
  double price = 0.0;
  for (const Group& group : groups) {
    price += static_cast<double>(group.count) * group.machine.price_per_hour;
  }
  return price;
}

std::vector<Marginal> marginals(const std::vector<Group>& groups, const Exchange& exchange, std::int64_t global_batch) {
  std::vector<Marginal> result;
  result.reserve(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    result.push_back(
        {.dropped = with_count(groups, i, groups[i].count - 1, exchange, global_batch),
         .added = with_count(groups, i, groups[i].count + 1, exchange, global_batch)});
  }
  return result;
}

}  // namespace isochron::plan
