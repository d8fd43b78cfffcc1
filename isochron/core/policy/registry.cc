#include "isochron/core/policy/registry.h"

#include <span>
#include <stdexcept>
#include <vector>

#include "isochron/core/policy/isochron.h"
#include "isochron/core/policy/static.h"
#include "isochron/core/policy/uniform.h"

namespace isochron {
namespace {

// A policy of our own enters the program here; the published ones stand between them in the order that users see.
constexpr PolicyEntry kBefore[] = {
    {.name = "uniform", .summary = "equal shares", .make = make_described<UniformPolicy, UniformOptions>},
    {.name = "static",
     .summary = "shares in proportion to given weights",
     .make = make_described<StaticPolicy, StaticOptions>},
};
constexpr PolicyEntry kAfter[] = {
    {.name = "isochron",
     .summary = "learned time curves, least expected step time, moves that pay",
     .make = make_described<IsochronPolicy, IsochronOptions>},
};

std::vector<PolicyEntry> all_policies() {
  std::vector<PolicyEntry> entries;
  for (const std::span<const PolicyEntry> part :
       {std::span<const PolicyEntry>(kBefore), baseline_policies(), std::span<const PolicyEntry>(kAfter)}) {
    entries.insert(entries.end(), part.begin(), part.end());
  }
  return entries;
}

}  // namespace

std::unique_ptr<Policy> make_policy(std::string_view specification) {
  const Specification spec = Specification::parse("policy", specification);
  std::string known;
  for (const PolicyEntry& entry : all_policies()) {
    if (entry.name == spec.name) {
      OptionTable table(spec);
      return entry.make(table);
    }
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw std::invalid_argument("policy is '" + spec.name + "'; permitted: " + known);
}

std::vector<PolicyHelp> policy_help() {
  std::vector<PolicyHelp> help;
  for (const PolicyEntry& entry : all_policies()) {
    OptionTable table({.kind = "policy", .name = std::string(entry.name), .options = {}});
    (void)entry.make(table);
    help.push_back({.name = std::string(entry.name), .summary = std::string(entry.summary), .options = table.rows()});
  }
  return help;
}

}  // namespace isochron
