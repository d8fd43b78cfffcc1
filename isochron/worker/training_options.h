// The options of a training run on a command line: those of a job, those of a run, and what a command line adds.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "isochron/train/options.h"

namespace isochron::worker {

struct TrainingOptions {
  train::Options options;
  std::string fence;  // empty: processes of this host are killed, others cannot be
  bool nominal_weight = false;

  /// This must outlive the parsing.
  void add_options(CLI::App& command);

  /// Where the command line says nothing, what the launcher said of this worker holds (io/worker_variables.h). Throws
  /// std::invalid_argument naming the option, the value and what is permitted.
  [[nodiscard]] train::Options checked(const CLI::App& command) const;
};

}  // namespace isochron::worker
