#include <iostream>
#include <memory>

#include "isochron/cli/commands.h"
#include "isochron/cli/json_output.h"
#include "isochron/cli/table.h"
#include "isochron/core/policy/registry.h"

namespace isochron::cli {
namespace {

nlohmann::ordered_json policy_json(const PolicyHelp& policy) {
  nlohmann::ordered_json options = nlohmann::ordered_json::array();
  for (const OptionTable::Row& row : policy.options) {
    options.push_back(
        {{"name", row.name}, {"meaning", row.meaning}, {"permitted", row.permitted}, {"default", row.standard}});
  }
  return {{"policy", policy.name}, {"summary", policy.summary}, {"options", std::move(options)}};
}

void print_policy(const PolicyHelp& policy) {
  constexpr std::size_t kWidth = 96;
  std::cout << policy.name << "\n  " << wrapped(policy.summary, kWidth, 2) << '\n';
  for (const OptionTable::Row& row : policy.options) {
    const std::string standard = row.standard.empty() ? "none" : row.standard;
    std::cout << "    " << row.name << '=' << standard << "  (" << row.permitted << ")\n        "
              << wrapped(row.meaning, kWidth, 8) << '\n';
  }
  std::cout << '\n';
}

void run_policies(JsonOutput& output) {
  output.open();
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const PolicyHelp& policy : policy_help()) {
    results.push_back(policy_json(policy));
    if (!output.takes_standard_output()) {
      print_policy(policy);
    }
  }
  if (!output.takes_standard_output()) {
    std::cout
        << "Options follow the name: omnilearn:dead-band=0.1,ewma=0.2. The simulator also knows 'oracle', which\n"
           "is told the true speeds of the coming step, and 'late-oracle', which is told those of the last one.\n";
  }
  output.write("policies", {}, results);
}

}  // namespace

void add_policies(CLI::App& program) {
  CLI::App* const command = program.add_subcommand("policies", "List the policies and their options");
  const auto output = std::make_shared<JsonOutput>();
  output->add_option(*command);
  command->final_callback([output] { run_policies(*output); });
}

}  // namespace isochron::cli
