// A run as the page gets it: one JSON object. Texts are safe inside a script element, numbers come in columns
// (columns.h); what is read from it is described by web/run.js.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "isochron/view/run_view.h"

namespace isochron::view {

/// What a reader has already. Lists that have not grown since are left out.
struct Since {
  std::int64_t records = 0;
  std::size_t events = 0;
  std::size_t decisions = 0;
  std::size_t evaluations = 0;
  bool operator==(const Since&) const = default;
};

/// All of `view` now, as a later call's `since`.
[[nodiscard]] Since now(const RunView& view);

/// Whether what was added since `since` is there exactly; otherwise it was summed up with what came before, and the
/// reader has to begin anew.
[[nodiscard]] bool can_continue(const RunView& view, const Since& since);

/// `name` is what the page calls the run. With `since`, the timeline has only the bins that came after it.
[[nodiscard]] std::string to_page_json(const RunView& view, const std::string& name, const Since& since = {});

/// `json` that no HTML parser takes for the end of a script or the start of a comment.
[[nodiscard]] std::string script_safe(std::string json);

/// {"policy", "samples_per_second", "step_seconds", …}: the keys that every command uses.
[[nodiscard]] std::string to_json(const Summary& summary, const RunHeader& header);

}  // namespace isochron::view
