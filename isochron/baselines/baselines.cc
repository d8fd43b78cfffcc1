// The published policies, as core's registry lists them.
#include "isochron/baselines/dlb.h"
#include "isochron/baselines/lb_bsp.h"
#include "isochron/baselines/lbb.h"
#include "isochron/baselines/omnilearn.h"
#include "isochron/core/policy/registry.h"

namespace isochron {
namespace {

constexpr PolicyEntry kBaselines[] = {
    {.name = "omnilearn",
     .summary = "proportional control of iteration times (ACSOS 2020, TPDS 2025)",
     .make = make_described<OmniLearnPolicy, OmniLearnOptions>},
    {.name = "lb-bsp",
     .summary = "split by predicted speeds, or by trial moves on GPUs (SoCC 2020)",
     .make = make_described<LbBspPolicy, LbBspOptions>},
    {.name = "lbb",
     .summary = "profile, cubic fit and integer solution, then single moves (J. Supercomputing 2024)",
     .make = make_described<LbbPolicy, LbbOptions>},
    {.name = "dlb",
     .summary = "shares in proportion to share over mean time, once per epoch",
     .make = make_described<DlbPolicy, DlbOptions>},
};

}  // namespace

std::span<const PolicyEntry> baseline_policies() {
  return kBaselines;
}

}  // namespace isochron
