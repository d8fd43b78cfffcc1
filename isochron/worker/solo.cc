#include "isochron/worker/solo.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace isochron::worker {
namespace {

/// This worker's samples per second at `batch`. All measure for the same time, so that nobody profits from a machine
/// that others have left.
double speed_at(train::Trainer& trainer, std::int64_t batch, double seconds) {
  trainer.solo_seconds(batch);  // memory for this size is taken here
  trainer.job().barrier();
  double elapsed = 0.0;
  std::int64_t samples = 0;
  while (elapsed < seconds) {
    elapsed += trainer.solo_seconds(batch);
    samples += batch;
  }
  return static_cast<double>(samples) / elapsed;
}

}  // namespace

std::vector<double> solo_speeds(train::Trainer& trainer, std::int64_t global_batch, double seconds) {
  constexpr int kPasses = 3;  // the batches of a pass come from the speeds of the one before
  Job& job = trainer.job();
  const auto me = static_cast<std::size_t>(job.rank());
  std::vector<double> speeds(static_cast<std::size_t>(job.size()), 1.0);
  for (int pass = 1; pass <= kPasses; ++pass) {
    const double share = speeds[me] / std::accumulate(speeds.begin(), speeds.end(), 0.0);
    const auto batch = std::max<std::int64_t>(std::llround(share * static_cast<double>(global_batch)), 1);
    std::vector<double> mine(speeds.size());
    mine[me] = speed_at(trainer, batch, pass == kPasses ? seconds : seconds / 4);
    speeds = job.sum(mine);
  }
  return speeds;
}

}  // namespace isochron::worker
