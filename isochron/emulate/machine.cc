#include "isochron/emulate/machine.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>

#include <sched.h>

#include "isochron/emulate/schedule.h"

namespace isochron::emulate {
namespace {

constexpr double kCoresOfAThread = 1.0;
constexpr double kShareOfTheMachine = 0.75;

double together(const std::vector<Limits>& limits) {
  double sum = 0.0;
  for (const Limits& worker : limits) {
    sum += worker.cores;
  }
  return sum;
}

std::string number(double value) {
  std::ostringstream text;
  text << std::setprecision(4) << value;
  return text.str();
}

}  // namespace

double machine_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

sim::ClusterSpec fit_to_machine(sim::ClusterSpec cluster, double cores) {
  double most = 0.0;
  double most_together = 0.0;
  for (const std::vector<Limits>& stage : Schedule(cluster).stages()) {
    most = std::max(most, std::ranges::max(stage, {}, &Limits::cores).cores);
    most_together = std::max(most_together, together(stage));
  }
  const double factor = std::min(kCoresOfAThread / most, kShareOfTheMachine * cores / most_together);
  for (sim::WorkerSpec& worker : cluster.workers) {
    worker.cores *= factor;
  }
  for (sim::Change& change : cluster.changes) {
    if (change.cores) {
      *change.cores *= factor;
    }
  }
  return cluster;
}

std::vector<std::string> warnings_about(const sim::ClusterSpec& cluster, double cores) {
  std::vector<std::string> warnings;
  const std::vector<std::vector<Limits>> stages = Schedule(cluster).stages();
  for (std::size_t worker = 0; worker < cluster.workers.size(); ++worker) {
    const auto in_stage = [worker](const std::vector<Limits>& stage) { return stage[worker].cores; };
    const double most = std::ranges::max(stages, {}, in_stage)[worker].cores;
    if (most > kCoresOfAThread) {
      warnings.push_back(
          "worker \"" + cluster.workers[worker].name + "\" has " + number(most) +
          " cores, but its one thread uses at most 1");
    }
  }
  const double most_together = together(std::ranges::max(stages, {}, together));
  if (most_together > cores) {
    warnings.push_back(
        "the workers have " + number(most_together) + " cores together, the machine " + number(cores) +
        ": they will get less than their share");
  }
  return warnings;
}

}  // namespace isochron::emulate
