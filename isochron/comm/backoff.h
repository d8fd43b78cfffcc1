// How long to sleep between two looks at something that will happen: not at all at first, then a fixed part of the time
// waited so far, up to a limit. So a short wait loses no time, a long one at most 1/16 of itself, and a very long one
// costs next to no CPU. A pure function of time; threads may share it.
#pragma once

#include <algorithm>
#include <chrono>

namespace isochron {

struct Backoff {
  // Looks follow one another without sleep for this long; 0: none.
  std::chrono::microseconds spin{200};
  // The longest sleep; it keeps a waiting rank near 3 % of a core.
  std::chrono::microseconds max_sleep{600};

  std::chrono::nanoseconds sleep_after(std::chrono::nanoseconds waited) const {
    if (waited < spin) {
      return std::chrono::nanoseconds::zero();
    }
    return std::min<std::chrono::nanoseconds>(waited / 16, max_sleep);
  }
};

}  // namespace isochron
