// What `simulate` found out, for people and for programs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "isochron/sim/simulate.h"

namespace isochron::cli {

/// One row per policy. `sync` decides which columns make sense.
[[nodiscard]] std::string results_table(const std::vector<sim::Result>& results, Sync sync);

/// The same of policies in several modes, as their labels say: "isochron local".
[[nodiscard]] std::string modes_table(const std::vector<sim::Result>& results);

/// Which mode to take: that of the fastest result, or the first one, bsp, if nothing is much faster. Results come mode
/// by mode, `policies` of each.
[[nodiscard]] std::string modes_sentence(const std::vector<sim::Result>& results, std::size_t policies);

/// One sentence that says what was gained: isochron, or else the fastest policy, against uniform, or else the slowest.
[[nodiscard]] std::string gain_sentence(const std::vector<sim::Result>& results);

/// The keys that every command uses: policy, samples_per_second, step_seconds, balance, batch_sizes, ….
[[nodiscard]] nlohmann::ordered_json to_json(const sim::Result& result, Sync sync);

}  // namespace isochron::cli
