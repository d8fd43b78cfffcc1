#include "tests/elastic/chaos.h"

#include <vector>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

constexpr int kFirstMortal = 2;  // workers below it stay
constexpr int kWorkers = 4;

}  // namespace

std::string chaos(std::uint64_t seed, std::int64_t steps) {
  Random random({seed});
  std::vector<int> mortal;
  for (int id = kFirstMortal; id < kWorkers; ++id) {
    mortal.push_back(id);
  }
  int next_id = kWorkers;
  std::string faults;
  const auto add = [&faults](std::int64_t step, const std::string& worker, const std::string& what) {
    faults += (faults.empty() ? "" : " ") + std::to_string(step) + ":" + worker + ":" + what;
  };
  const auto take_mortal = [&] {
    const auto index = static_cast<std::ptrdiff_t>(random.below(mortal.size()));
    const int id = mortal[static_cast<std::size_t>(index)];
    mortal.erase(mortal.begin() + index);
    return std::to_string(id);
  };
  for (auto step = static_cast<std::int64_t>(3 + random.below(5)); step + 5 < steps;
       step += static_cast<std::int64_t>(5 + random.below(10))) {
    const std::string anybody = std::to_string(random.below(kWorkers));
    switch (random.below(8)) {
      case 0:
        if (!mortal.empty()) {
          add(step, take_mortal(), "forward");
        }
        break;
      case 1:
        if (!mortal.empty()) {
          add(step, take_mortal(), "reduce:" + std::to_string(random.below(20'000)));
        }
        break;
      case 2:
        if (!mortal.empty()) {
          add(step, take_mortal(), random.below(2) == 0 ? "after-optimizer" : "before-optimizer");
        }
        break;
      case 3:
        if (!mortal.empty() && random.below(2) == 0) {
          add(step, take_mortal(), "stop");
        }
        break;
      case 4:
      case 5:
        add(step, "first", "join");
        mortal.push_back(next_id++);
        break;
      case 6:
        add(step, anybody, "memory");
        break;
      default:
        add(step, anybody, "slow:" + std::to_string(static_cast<double>(random.below(20)) * 1e-4));
        break;
    }
  }
  return faults;
}

}  // namespace isochron
