#include "isochron/comm/quorum.h"

#include <algorithm>
#include <cstddef>

namespace isochron {

bool is_outvoted(const std::vector<RollCall::Missing>& missing, const std::vector<int>& dead, int size) {
  std::vector<bool> silent(static_cast<std::size_t>(size));
  for (const auto& [peer, started] : missing) {
    silent[static_cast<std::size_t>(peer.rank)] = !started;
  }
  int majority = 0;  // of those who answer
  bool first_is_silent = false;
  for (int rank = size - 1; rank >= 0; --rank) {
    if (std::ranges::find(dead, rank) == dead.end()) {
      first_is_silent = silent[static_cast<std::size_t>(rank)];
      majority += first_is_silent ? -1 : 1;
    }
  }
  return majority < 0 || (majority == 0 && first_is_silent);
}

}  // namespace isochron
