// The options of a training run as they stand on a command line.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "isochron/train/options.h"

namespace isochron::worker {

struct TrainingWords {
  train::Options options;  // what needs no translation goes here
  std::int64_t seed = 0;
  std::string last_batch = "keep";
  std::string weighting = "exact";
  std::string rate_rule = "none";
  std::string sync = "bsp";
  std::int64_t staleness = -1;  // -1: not given
  std::string push_rate = "none";
  std::string compression = "none";
  std::string numbers = "stop";
  std::string fence;           // empty: processes of this host are killed, others cannot be
  double memory_limit = 0.0;   // bytes; 0: none
  std::int64_t max_batch = 0;  // 0: no limit
  bool no_augment = false;
  bool no_sync_batch_norm = false;
  bool nominal_weight = false;
  double bucket_bytes = 0.0;  // 0: as the engine likes
  double timeout_seconds = 300.0;

  /// This must outlive the parsing.
  void add_options(CLI::App& command);

  /// Where the command line says nothing, what the launcher said of this worker holds (io/worker_variables.h). Throws
  /// std::invalid_argument naming the option, the value and what is permitted.
  [[nodiscard]] train::Options checked(const CLI::App& command) const;
};

}  // namespace isochron::worker
