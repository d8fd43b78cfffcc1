#include "isochron/engine/patience.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "isochron/engine/listeners.h"

namespace isochron {
namespace {

constexpr double kSteps = 5.0;
constexpr std::int64_t kLeastMilliseconds = 1000;

// Negative: none. Without a number it is the first.
int gpu_of(const JobOptions& options) {
  return options.device.is_cuda() ? std::max<int>(options.device.index(), 0) : -1;
}

}  // namespace

Patience::Patience(const JobOptions& options) : milliseconds_(options.patience().count()) {
}

void Patience::follow(double step_seconds) {
  milliseconds_ = std::max<std::int64_t>(kLeastMilliseconds, std::llround(step_seconds * kSteps * 1000.0));
}

WorldOptions Patience::world_options(const JobOptions& options) const {
  WorldOptions world{
      .timeout = options.patience(), .watch = {}, .gpu = gpu_of(options), .warn = options.warn, .fence = options.fence};
  world.watch.patience = [this] { return std::chrono::milliseconds(milliseconds_); };
  world.watch.tell = [&options](const std::vector<Peer>& suspects, std::chrono::milliseconds waited) {
    for (const Peer& peer : suspects) {
      warn(
          options,
          "rank " + std::to_string(peer.rank) + " on " + peer.host + " (process " + std::to_string(peer.process) +
              ") has kept the others waiting for " + std::to_string(waited.count()) + " ms");
    }
  };
  return world;
}

}  // namespace isochron
