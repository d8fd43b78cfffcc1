#include "isochron/cli/lengths_option.h"

#include <filesystem>
#include <stdexcept>

#include "isochron/cli/options.h"
#include "isochron/core/error.h"
#include "isochron/io/lengths_file.h"

namespace isochron::cli {

void LengthsOption::add_options(CLI::App& command) {
  command
      .add_option(
          "--lengths",
          lengths,
          "How long samples are: lognormal:median=148,sigma=0.8,least=8,most=2048, or a file with one number a line")
      ->type_name("lognormal|FILE")
      ->group(kLengthsGroup);
  command
      .add_option(
          "--cost",
          cost,
          "A sample costs its length L, or L + L^2 / (6 WIDTH); attention: WIDTH is 768, and the policy learns it")
      ->type_name("linear|attention|attention:width=WIDTH")
      ->capture_default_str()
      ->group(kLengthsGroup);
  add_choice(command, "--collate", collate, all_names(kCollationNames), "How the costs of a share add up")
      ->group(kLengthsGroup);
}

std::optional<sim::Lengths> LengthsOption::checked() const {
  if (lengths.empty()) {
    require(cost == "linear", "--cost", in_quotes(cost), "with --lengths");
    return std::nullopt;
  }
  sim::Lengths checked;
  try {
    if (std::filesystem::is_regular_file(lengths)) {
      checked.given = io::read_lengths(lengths);
    } else {
      checked = sim::parse_lengths(lengths);
    }
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("--lengths: " + std::string(error.what()));
  }
  checked.cost = parse_length_cost("--cost", cost);
  checked.collation = parse_name(kCollationNames, "--collate", collate);
  return checked;
}

}  // namespace isochron::cli
