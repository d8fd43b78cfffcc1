#include "isochron/cli/policy_list.h"

#include <algorithm>
#include <stdexcept>

#include "isochron/core/policy/registry.h"
#include "isochron/sim/splitter.h"

namespace isochron::cli {
namespace {

bool continues(std::string_view piece) {
  const std::size_t sign = piece.find_first_of(":=");
  return sign != std::string_view::npos && piece[sign] == '=';
}

}  // namespace

std::vector<std::string> split_policies(std::string_view text) {
  std::vector<std::string> policies;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view piece = text.substr(0, comma);
    if (continues(piece) && !policies.empty()) {
      policies.back().append(policies.back().find(':') == std::string::npos ? ":" : ",").append(piece);
    } else {
      policies.emplace_back(piece);
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
