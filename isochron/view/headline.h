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
/// what a watch has foretold, or its speed, how long workers wait and what its shares gain.
[[nodiscard]] std::string headline(const std::vector<NamedRun>& runs);

/// What people call what a policy does: "equal batches" for `uniform`, and its name for any other.
[[nodiscard]] std::string in_words(const std::string& policy);

/// A gain below this is not worth a word.
inline constexpr double kWorthAWord = 1.05;

/// "in its last steps about 1.9 times as fast as with equal shares", or what the best shares would gain; empty if
/// neither is worth a word, or known.
[[nodiscard]] std::string gain_in_words(const Summary& summary);

/// 1234567.8 as "1,234,567.8".
[[nodiscard]] std::string grouped(double value, int digits);

}  // namespace isochron::view
