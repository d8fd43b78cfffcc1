// How the workers of a job keep in step.
#pragma once

#include <cstdint>
#include <string_view>

#include "isochron/core/names.h"

namespace isochron {

enum class Sync : std::uint8_t {
  kBsp,  // bulk-synchronous: one update for every global batch, by an all-reduce
  kAsp,  // asynchronous: every worker updates the parameters on servers by itself and waits for nobody
  kSsp,  // the same, but nobody is more than a bound of iterations ahead of the slowest
};

inline constexpr Names<Sync, 3> kSyncNames{{{Sync::kBsp, "bsp"}, {Sync::kAsp, "asp"}, {Sync::kSsp, "ssp"}}};

inline std::string_view to_string(Sync sync) {
  return name_of(kSyncNames, sync);
}

}  // namespace isochron
