// The smallest use of the core: one controller, three workers, made-up times.
//
// A real job runs this loop on every worker. All of them feed the same telemetry, so all hold the same decision.
#include <array>
#include <cstdio>
#include <string>

#include "isochron/core/policy/controller.h"

namespace {

// Worker 2 needs four times as long for a sample, and from step 6 on worker 0 does, too.
double seconds_per_sample(std::size_t worker, int step) {
  constexpr std::array<double, 3> kAtFirst = {0.010, 0.010, 0.040};
  return worker == 0 && step >= 6 ? 0.040 : kAtFirst.at(worker);
}

}  // namespace

int main() {
  const isochron::Roster roster{
      .workers = {{.id = 0}, {.id = 1}, {.id = 2, .max_batch = 64}},
      .global_batch = 96,
  };
  isochron::Controller controller(roster, {.policy = "isochron"});

  for (int step = 0; step < 12; ++step) {
    const isochron::Decision& decision = controller.decision();
    std::string split;
    isochron::StepTelemetry telemetry{.step = step, .workers = {}};
    for (std::size_t k = 0; k < roster.workers.size(); ++k) {
      const std::int64_t batch = decision.batch_sizes[k];
      const double seconds = static_cast<double>(batch) * seconds_per_sample(k, step);
      telemetry.workers.push_back({.worker = roster.workers[k].id, .batch = batch, .seconds = seconds});
      split += std::to_string(batch) + " ";
    }
    std::printf("step %2d: %-10s %s\n", step, split.c_str(), decision.words.c_str());
    controller.observe(telemetry);
  }
}
