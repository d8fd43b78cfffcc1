// Reads the line of a step in exactly the shape that to_json writes it, ten times as fast as a JSON parser does: long
// runs are nearly all such lines. Whatever looks different in the least is left to the parser.
#pragma once

#include <cstdint>
#include <string_view>

#include "isochron/core/trace/run_log.h"

namespace isochron::io {

/// Whether `line`, without its line feed, has that shape; if not, `record` holds nothing of use. `staleness` becomes
/// that of an update, and -1 for a step.
[[nodiscard]] bool read_step_line(std::string_view line, StepRecord& record, std::int64_t& staleness);

}  // namespace isochron::io
