// The one sentence that says what a report found.
#pragma once

#include <string>
#include <vector>

#include "isochron/view/run_view.h"

namespace isochron::view {

struct NamedRun {
  std::string name;
  const RunView* view = nullptr;
};

/// For several runs, how much faster isochron, or else the fastest, is than uniform, or else the slowest; for one run,
/// its speed and how long workers wait.
[[nodiscard]] std::string headline(const std::vector<NamedRun>& runs);

/// 1234567.8 as "1,234,567.8".
[[nodiscard]] std::string grouped(double value, int digits);

}  // namespace isochron::view
