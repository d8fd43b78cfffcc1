// The command line of `isochron train`.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "isochron/cli/json_output.h"
#include "isochron/serve/run_server.h"
#include "isochron/worker/progress_line.h"
#include "isochron/worker/training_options.h"

namespace isochron::worker {

struct TrainRequest {
  TrainingOptions training;
  std::string config;  // empty: none, as the files below
  cli::JsonOutput output;
  std::string log;
  std::string log_errors = "warn";
  std::string trace;
  std::int64_t serve_port = -1;  // -1: the live page is not served
  serve::ServeOptions serve;
  std::string progress = "auto";
  bool quiet = false;
  std::int64_t evaluate_every = 1;  // epochs; 0: never
  double target_accuracy = 0.0;     // 0: none

  /// This must outlive the parsing.
  void add_options(CLI::App& command);

  /// Throws std::invalid_argument naming the option, the value and what is permitted.
  void check() const;
  [[nodiscard]] ProgressStyle progress_style() const;
};

}  // namespace isochron::worker
