// What `isochron top` shows of a run, as lines of text for a terminal of a given size.
//
// A pure function: the same view and size give the same lines. Text from the log is stripped of what a terminal would
// obey. No line is wider than the terminal if every character is one column wide.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "isochron/view/run_view.h"

namespace isochron::view {

struct FrameOptions {
  std::size_t columns = 80;
  std::size_t rows = 24;         // 0: as many as there is something to say
  std::size_t first_worker = 0;  // scrolled to
  bool colour = false;
  bool unicode = true;
};

[[nodiscard]] std::vector<std::string> frame(const RunView& view, const FrameOptions& options);

/// `text` without control characters and escape sequences.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace isochron::view
