// Whether this user may make control groups here, for tests that need them.
#pragma once

#include <string>

#include "isochron/core/error.h"
#include "isochron/emulate/cgroup.h"
#include "isochron/emulate/owner.h"

namespace isochron::emulate {

/// Empty if they can be made.
inline std::string why_no_control_groups() {
  const std::optional<CgroupTree> tree = find_cgroup_tree();
  if (!tree) {
    return "no control groups for CPU time";
  }
  try {
    const CpuGroups probe(*tree, owner_name() + "-probe", {{.microseconds = 1'000, .period = 10'000}});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace isochron::emulate
