// Who may put whom out of a job. Where a network falls apart each side sees the other as silent, and could kill it; if
// both did, nobody would be left. So the larger side may, and of equal halves the one with the first rank. Pure.
#pragma once

#include <vector>

#include "isochron/comm/roll_call.h"

namespace isochron {

// Whether the silent ones are the side that may, among `size` ranks; those known to be `dead` belong to none.
bool is_outvoted(const std::vector<RollCall::Missing>& missing, const std::vector<int>& dead, int size);

}  // namespace isochron
