// What `plan` found out, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "isochron/cli/plan_request.h"
#include "isochron/plan/length_forecast.h"
#include "isochron/plan/modes.h"

namespace isochron::cli {

struct PlanResults {
  std::vector<plan::Step> sweep;  // by global batch; empty if it was given
  plan::Step best;
  plan::Step uniform;                     // the same batch in equal shares
  std::vector<plan::Marginal> marginals;  // by group
  std::vector<plan::Mode> modes;          // of keeping in step; empty if nothing is exchanged
  std::optional<plan::LengthForecast> lengths;
};

/// Throws std::invalid_argument if the machines cannot hold the batch, or none at all.
[[nodiscard]] PlanResults make_plan(const PlanTask& task);

/// Several tables with sentences between.
[[nodiscard]] std::string to_text(const PlanTask& task, const PlanResults& results);

/// What stands beside the results, and the results: isochron's split and equal shares.
[[nodiscard]] nlohmann::ordered_json plan_details(const PlanTask& task, const PlanResults& results);
[[nodiscard]] nlohmann::ordered_json plan_documents(const PlanTask& task, const PlanResults& results);

}  // namespace isochron::cli
