// --lengths, --cost and --collate: samples that cost differently, for commands that reckon with them.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "isochron/sim/lengths.h"

namespace isochron::cli {

inline constexpr const char* kLengthsGroup = "Samples that cost differently";

struct LengthsOption {
  std::string lengths;  // empty: all cost the same
  std::string cost = "linear";
  std::string collate = "packed";

  /// This must outlive the parsing.
  void add_options(CLI::App& command);
  /// Reads the file. Throws std::invalid_argument naming the option, the value and what is permitted.
  [[nodiscard]] std::optional<sim::Lengths> checked() const;
};

}  // namespace isochron::cli
