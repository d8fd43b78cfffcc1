#include "isochron/engine/step_clock.h"

#include <algorithm>

#include "isochron/io/process_usage.h"

namespace isochron {
namespace {

double in_seconds(StepClock::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void StepClock::go_forward(double seconds) {
  began_ -= std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double StepClock::since_start(Clock::time_point moment) const {
  return in_seconds(moment - began_);
}

void StepClock::begin_step() {
  step_began_ = Clock::now();
  cpu_began_ = io::cpu_seconds();
}

StepReport StepClock::measure(const SyncBatchNorm::Waits& waits) const {
  StepReport measured;
  measured.start = since_start(step_began_);
  measured.waited = in_seconds(waits.time);
  measured.seconds = std::max(in_seconds(Clock::now() - step_began_) - measured.waited, 0.0);
  measured.sync_points = waits.count + 1;
  measured.usage = io::process_usage(cpu_began_, measured.seconds);
  return measured;
}

}  // namespace isochron
