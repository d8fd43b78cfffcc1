// The policies by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/core/options.h"
#include "isochron/core/policy/policy.h"

namespace isochron {

/// "isochron", or "omnilearn:dead-band=0.1". Throws std::invalid_argument naming an unknown policy or option, its value
/// and what is permitted.
[[nodiscard]] std::unique_ptr<Policy> make_policy(std::string_view specification);

struct PolicyHelp {
  std::string name;
  std::string summary;
  std::vector<OptionTable::Row> options;
};

/// Every policy with its options, in the order they are listed to users.
[[nodiscard]] std::vector<PolicyHelp> policy_help();

}  // namespace isochron
