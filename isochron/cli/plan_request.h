// The command line of `isochron plan`, and what it asks for once checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "isochron/cli/json_output.h"
#include "isochron/cli/lengths_option.h"
#include "isochron/plan/choice.h"

namespace isochron::cli {

struct PlanRequest {
  std::string machines;  // file; this or the next one
  std::string cluster;
  std::string model_profile;
  std::string run;                           // a run log, in place of all the above
  std::optional<std::int64_t> global_batch;  // none: searched
  std::int64_t epochs = 1;
  std::int64_t dataset_size = 0;  // 0: the profile's
  double overlap = 1.0;
  std::optional<double> noise;  // beats what profile and machines say
  LengthsOption samples;
  JsonOutput output;

  /// This must outlive the parsing.
  void add_options(CLI::App& command);
};

/// What is to be planned, all of it known to be sound.
struct PlanTask {
  std::string title;  // of the machines: "hl4", or the file's name
  std::string model;  // of the profile; may be empty, as the next one
  std::string dataset;
  std::vector<plan::Group> groups;
  plan::Exchange exchange;
  std::optional<std::int64_t> global_batch;
  std::int64_t epochs = 1;
  std::int64_t dataset_size = 0;  // 0: unknown
  std::optional<sim::Lengths> lengths;
};

/// Reads the files. Throws std::invalid_argument naming the option, the value and what is permitted.
[[nodiscard]] PlanTask checked(const PlanRequest& request);

}  // namespace isochron::cli
