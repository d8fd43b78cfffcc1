// The allocator's second reference: the same problem as a mixed-integer program, solved by GLPK.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "isochron/core/allocate/allocate.h"

namespace isochron::reference {

/// The optimal time of a feasible problem, up to GLPK's tolerance; nothing if branch and bound takes too many nodes.
/// For bent lines, not tables.
std::optional<double> mip_seconds(std::span<const Slot> slots, std::int64_t global_batch);

}  // namespace isochron::reference
