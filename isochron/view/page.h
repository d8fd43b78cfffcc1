// The HTML page: one file that holds everything it shows and loads nothing.
//
// A content security policy lets only the page's own scripts run, by a number used once: whatever a run log says is
// text. The live page (isochron/serve) is the same page with a source of updates.
#pragma once

#include <string>
#include <vector>

#include "isochron/view/headline.h"

namespace isochron::view {

struct PageOptions {
  bool live = false;  // follow `events` beside the page's address
};

/// `runs` must not be empty.
[[nodiscard]] std::string page(const std::vector<NamedRun>& runs, const PageOptions& options = {});

/// The page's data alone: {"live", "headline", "runs"}.
[[nodiscard]] std::string page_json(const std::vector<NamedRun>& runs, const PageOptions& options = {});

}  // namespace isochron::view
