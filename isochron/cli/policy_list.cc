#include "isochron/cli/policy_list.h"

#include <algorithm>
#include <stdexcept>

#include "isochron/core/policy/registry.h"
#include "isochron/sim/splitter.h"

namespace isochron::cli {
namespace {

bool continues(std::string_view part) {
  const std::size_t sign = part.find_first_of(":=");
  return sign != std::string_view::npos && part[sign] == '=';
}

}  // namespace

std::vector<std::string> split_policies(std::string_view text) {
  std::vector<std::string> policies;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    if (continues(part) && !policies.empty()) {
      policies.back().append(policies.back().find(':') == std::string::npos ? ":" : ",").append(part);
    } else {
      policies.emplace_back(part);
    }
    if (comma == std::string_view::npos) {
      return policies;
    }
    text.remove_prefix(comma + 1);
  }
}

std::vector<std::string> parse_policies(std::string_view text) {
  std::vector<std::string> policies = split_policies(text);
  for (auto policy = policies.begin(); policy != policies.end(); ++policy) {
    if (!sim::is_oracle(*policy)) {
      (void)make_policy(*policy);
    }
    if (std::find(policies.begin(), policy, *policy) != policy) {
      throw std::invalid_argument("policy '" + *policy + "' is there twice; permitted: once");
    }
  }
  return policies;
}

}  // namespace isochron::cli
