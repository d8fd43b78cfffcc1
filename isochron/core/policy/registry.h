// The policies by name.
//
// Core knows its own; the published ones are in isochron/baselines, a library that includes core and that every program
// links: it defines baseline_policies(), which core only declares.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isochron/core/options.h"
#include "isochron/core/policy/policy.h"

namespace isochron {

/// "isochron", or "omnilearn:dead-band=0.1". Throws std::invalid_argument naming an unknown policy or option, its value
/// and what is permitted.
[[nodiscard]] std::unique_ptr<Policy> make_policy(std::string_view specification);

/// How a policy is listed and made.
struct PolicyEntry {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Policy> (*make)(OptionTable& table);
};

/// Makes a policy of the options that the table holds.
template <class PolicyType, class Options>
std::unique_ptr<Policy> make_described(OptionTable& table) {
  Options options;
  options.describe(table);
  table.finish();
  return std::make_unique<PolicyType>(std::move(options));
}

/// The published policies.
[[nodiscard]] std::span<const PolicyEntry> baseline_policies();

struct PolicyHelp {
  std::string name;
  std::string summary;
  std::vector<OptionTable::Row> options;
};

/// Every policy with its options, in the order they are listed to users.
[[nodiscard]] std::vector<PolicyHelp> policy_help();

}  // namespace isochron
