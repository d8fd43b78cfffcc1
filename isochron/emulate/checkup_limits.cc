#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/core/trace/json.h"
#include "isochron/emulate/cgroup.h"
#include "isochron/emulate/checkup.h"
#include "isochron/emulate/network.h"
#include "isochron/emulate/owner.h"
#include "isochron/emulate/worker_process.h"

namespace isochron::emulate {
namespace {

using namespace std::chrono_literals;

/// Cores that a process which wants all it can get has used over a while in `group`.
double cores_used_in(const std::filesystem::path& group) {
  const pid_t child = fork();
  if (child == 0) {
    join_cgroup(group);
    for (volatile unsigned turns = 0;;) {
      turns = turns + 1;
    }
  }
  const WorkerProcess process({.process = child, .group = child});
  std::this_thread::sleep_for(50ms);  // the first period may be any part of one
  const auto start = std::chrono::steady_clock::now();
  const auto before = process.cpu_time().value_or(0ns);
  std::this_thread::sleep_for(400ms);
  const std::chrono::duration<double> used = process.cpu_time().value_or(0ns) - before;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return used / passed;
}

Finding check_quotas() {
  Finding finding{
      .check = "CPU quotas",
      .health = Health::kWarn,
      .remedy =
          "run as root or in a control group that you own (systemd-run --user --scope); else workers are stopped "
          "and continued instead, which is coarser"};
  const std::optional<CgroupTree> tree = find_cgroup_tree();
  if (!tree) {
    finding.text = "this system has no control groups for CPU time";
    return finding;
  }
  try {
    const CpuGroups groups(*tree, owner_name(), {{.microseconds = 2'500, .period = 10'000}});
    const double used = cores_used_in(groups.folder(0));
    finding.text = "control groups, version " + std::to_string(tree->version) + "; 0.25 cores are " +
                   json_number(std::round(1000.0 * used) / 1000.0);
    if (used > 0.22 && used < 0.28) {
      finding.health = Health::kOk;
      finding.remedy.clear();
    } else {
      finding.remedy = "quotas do not hold, or the machine is busy: end other work and look again";
    }
  } catch (const Error& error) {
    finding.text = error.what();
  }
  return finding;
}

Finding check_link(const std::string& check, const sim::Link& link, const std::string& remedy) {
  Finding finding{.check = check};
  try {
    const Network network(owner_name(), {link});
    finding.text = "can be emulated, in network namespaces by tc";
  } catch (const Error& error) {
    finding.health = Health::kWarn;
    finding.text = error.what();
    finding.remedy = remedy;
  }
  return finding;
}

}  // namespace

std::vector<Finding> check_limits() {
  return {
      check_quotas(),
      check_link("link rates", {.bytes_per_second = 1e6}, "run as root, with the packages iproute2 and util-linux"),
      check_link("link delays", {.delay_seconds = 0.001}, "as for link rates, and a kernel with sch_netem")};
}

}  // namespace isochron::emulate
