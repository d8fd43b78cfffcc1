// How the workers of a job keep in step.
#pragma once

#include <cstdint>
#include <string_view>

#include "isochron/core/names.h"

namespace isochron {

enum class Sync : std::uint8_t {
  kBsp,    // bulk-synchronous: one update for every global batch, by an all-reduce
  kLocal,  // rounds of several global batches, in local steps; the changes are averaged at the end of a round
  kAsp,    // asynchronous: every worker updates the parameters on servers by itself and waits for nobody
  kSsp,    // the same, but nobody is more than a bound of iterations ahead of the slowest
};

inline constexpr Names<Sync, 4> kSyncNames{
    {{Sync::kBsp, "bsp"}, {Sync::kLocal, "local"}, {Sync::kAsp, "asp"}, {Sync::kSsp, "ssp"}}};

inline std::string_view to_string(Sync sync) {
  return name_of(kSyncNames, sync);
}

/// All workers finish the same steps, of which each is a round with kLocal.
inline bool in_step(Sync sync) {
  return sync == Sync::kBsp || sync == Sync::kLocal;
}

}  // namespace isochron
