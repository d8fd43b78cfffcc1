// The command line of `isochron simulate`, and what it asks for once checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "isochron/cli/json_output.h"
#include "isochron/cli/lengths_option.h"
#include "isochron/core/job_settings.h"
#include "isochron/sim/simulate.h"

namespace isochron::cli {

struct SimulateRequest {
  std::string cluster = "hl8";
  std::string policies = "uniform,omnilearn,lb-bsp,lbb,dlb,isochron";
  std::string device = "cpu";
  std::int64_t seed = 0;
  std::string sync = "bsp";
  std::string rate_rule = "none";
  bool no_overlap = false;
  std::optional<double> noise;       // the three beat what the cluster says of its workers
  std::optional<double> link_rate;   // bytes per second
  std::optional<double> link_delay;  // seconds
  std::string start_from;            // the log of an earlier run; empty: none
  LengthsOption samples;
  std::string deal = "cost";
  sim::Options options;  // the rest of them
  JsonOutput output;
  std::string log;    // empty: none
  std::string trace;  // empty: none

  /// This must outlive the parsing.
  void add_options(CLI::App& command);

  /// Each throws std::invalid_argument naming the option, the value and what is permitted.
  [[nodiscard]] std::vector<std::string> checked_policies() const;
  [[nodiscard]] sim::Options checked_options() const;
  [[nodiscard]] sim::ClusterSpec checked_cluster() const;
  /// Those that are compared: the one of the options, or all.
  [[nodiscard]] std::vector<Sync> checked_syncs() const;

 private:
  [[nodiscard]] std::optional<sim::Lengths> checked_lengths() const;
};

}  // namespace isochron::cli
