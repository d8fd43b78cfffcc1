#include "isochron/core/policy/registry.h"

#include <stdexcept>
#include <utility>

#include "isochron/core/policy/dlb.h"
#include "isochron/core/policy/isochron.h"
#include "isochron/core/policy/lb_bsp.h"
#include "isochron/core/policy/lbb.h"
#include "isochron/core/policy/omnilearn.h"
#include "isochron/core/policy/static.h"
#include "isochron/core/policy/uniform.h"

namespace isochron {
namespace {

template <class PolicyType, class Options>
std::unique_ptr<Policy> make(OptionTable& table) {
  Options options;
  options.describe(table);
  table.finish();
  return std::make_unique<PolicyType>(std::move(options));
}

struct Entry {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Policy> (*make)(OptionTable& table);
};

// A policy enters the program here, in the order users see.
constexpr Entry kPolicies[] = {
    {.name = "uniform", .summary = "equal shares", .make = make<UniformPolicy, UniformOptions>},
    {.name = "static", .summary = "shares in proportion to given weights", .make = make<StaticPolicy, StaticOptions>},
    {.name = "omnilearn",
     .summary = "proportional control of iteration times (ACSOS 2020, TPDS 2025)",
     .make = make<OmniLearnPolicy, OmniLearnOptions>},
    {.name = "lb-bsp",
     .summary = "split by predicted speeds, or by trial moves on GPUs (SoCC 2020)",
     .make = make<LbBspPolicy, LbBspOptions>},
    {.name = "lbb",
     .summary = "profile, cubic fit and integer solution, then single moves (J. Supercomputing 2024)",
     .make = make<LbbPolicy, LbbOptions>},
    {.name = "dlb",
     .summary = "shares in proportion to share over mean time, once per epoch",
     .make = make<DlbPolicy, DlbOptions>},
    {.name = "isochron",
     .summary = "learned time curves, least expected step time, moves that pay",
     .make = make<IsochronPolicy, IsochronOptions>},
};

}  // namespace

std::unique_ptr<Policy> make_policy(std::string_view specification) {
  const Specification spec = Specification::parse("policy", specification);
  std::string known;
  for (const Entry& entry : kPolicies) {
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
  for (const Entry& entry : kPolicies) {
    OptionTable table({.kind = "policy", .name = std::string(entry.name), .options = {}});
    (void)entry.make(table);
    help.push_back({.name = std::string(entry.name), .summary = std::string(entry.summary), .options = table.rows()});
  }
  return help;
}

}  // namespace isochron
