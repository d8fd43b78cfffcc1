#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include <sys/statvfs.h>

#include "isochron/core/error.h"
#include "isochron/core/trace/json.h"
#include "isochron/emulate/checkup.h"
#include "isochron/emulate/job_folder.h"
#include "isochron/emulate/machine.h"
#include "isochron/emulate/process.h"

namespace isochron::emulate {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr double kMebi = 1024.0 * 1024.0;

std::string rounded(double value) {
  return json_number(std::round(10.0 * value) / 10.0);
}

Finding check_cores() {
  double load = 0.0;
  std::ifstream("/proc/loadavg") >> load;
  const double cores = machine_cores();
  Finding finding{.check = "cores", .text = rounded(cores) + ", others use " + rounded(load)};
  if (load > 0.25 * cores) {
    finding.health = Health::kWarn;
    finding.remedy = "end other work: workers would wait for it, and times vary";
  }
  return finding;
}

Finding check_memory() {
  std::ifstream file("/proc/meminfo");
  double kibibytes = 0.0;
  for (std::string key, rest; file >> key && key != "MemAvailable:"; std::getline(file, rest)) {
  }
  file >> kibibytes;
  Finding finding{.check = "memory", .text = rounded(kibibytes / 1024.0 / 1024.0) + " GiB are free"};
  if (kibibytes < 1024.0 * 1024.0) {
    finding.health = Health::kWarn;
    finding.remedy = "a worker takes some 300 MiB: use fewer, or end other work";
  }
  return finding;
}

Finding check_shared_memory() {
  struct statvfs status{};
  Finding finding{.check = "shared memory"};
  const double free = statvfs("/dev/shm", &status) == 0
                          ? static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize)
                          : 0.0;
  finding.text = rounded(free / kMebi) + " MiB are free in /dev/shm";
  if (free < 256.0 * kMebi) {
    finding.health = Health::kWarn;
    finding.remedy =
        "workers of one machine exchange gradients there: mount -o remount,size=1g /dev/shm, or docker run "
        "--shm-size=1g";
  }
  return finding;
}

Finding check_temporary_folder() {
  Finding finding{.check = "temporary folder"};
  try {
    const OwnFolder folder;
    finding.text = folder.path().parent_path().string() + " can be written";
  } catch (const std::exception& error) {
    finding.health = Health::kFail;
    finding.text = error.what();
    finding.remedy = "name another one: export TMPDIR=…";
  }
  return finding;
}

/// How late a sleeping thread wakes up, in the middle of several tries.
double lateness_in_microseconds() {
  std::vector<double> late;
  for (int i = 0; i < 21; ++i) {
    const auto due = Clock::now() + std::chrono::milliseconds(1);
    std::this_thread::sleep_until(due);
    late.push_back(Microseconds(Clock::now() - due).count());
  }
  std::ranges::nth_element(late, late.begin() + 10);
  return late[10];
}

Finding check_clock() {
  std::string source;
  std::ifstream("/sys/devices/system/clocksource/clocksource0/current_clocksource") >> source;
  constexpr int kReadings = 10'000;
  bool steady = true;
  const auto start = Clock::now();
  auto last = start;
  for (int i = 0; i < kReadings; ++i) {
    const auto now = Clock::now();
    steady = steady && now >= last;
    last = now;
  }
  const double reading = Microseconds(last - start).count() / kReadings;
  const double late = lateness_in_microseconds();
  Finding finding{
      .check = "clock",
      .text = source + (steady ? "" : ", which goes back") + "; a reading takes " + rounded(1000.0 * reading) +
              " ns, sleepers wake " + rounded(late) + " us late"};
  if (!steady || reading > 1.0) {
    finding.health = Health::kWarn;
    finding.remedy = "choose a better clock source than " + source + ", such as tsc or kvm-clock";
  } else if (late > 1000.0) {
    finding.health = Health::kWarn;
    finding.remedy = "the machine is busy, or its timers are coarse: changes of speed will be late";
  }
  return finding;
}

std::vector<Finding> check_gpus() {
  const Outcome list = find_program("nvidia-smi").empty() ? Outcome{.status = 1} : run({"nvidia-smi", "-L"});
  if (list.status != 0) {
    return {{.check = "GPUs", .text = "none; workers train on the CPU"}};
  }
  const auto count = std::ranges::count(list.output, '\n');
  std::vector<Finding> findings{
      {.check = "GPUs", .text = std::to_string(count) + ": " + list.output.substr(0, list.output.find(" (UUID"))}};
  const char* const named = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  Finding shares{.check = "GPU shares", .text = "the MPS daemon is running"};
  if (!fs::exists(fs::path(named == nullptr ? "/tmp/nvidia-mps" : named) / "control")) {
    shares.health = Health::kWarn;
    shares.text = "no MPS daemon, so gpu_share in a cluster file has no effect";
    shares.remedy = "nvidia-cuda-mps-control -d";
  }
  findings.push_back(shares);
  return findings;
}

Finding check_data(const fs::path& data) {
  Finding finding{.check = "data"};
  std::string names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(data, ignored)) {
    if (entry.is_directory()) {
      names += (names.empty() ? "" : ", ") + entry.path().filename().string();
    }
  }
  finding.text = data.string() + ": " + (names.empty() ? "no datasets" : names);
  if (names.empty()) {
    finding.health = Health::kWarn;
    finding.remedy = "`make data` brings them; synthetic ones need none";
  }
  return finding;
}

}  // namespace

std::vector<Finding> check_machine(const fs::path& data) {
  std::vector<Finding> findings{
      check_cores(), check_memory(), check_shared_memory(), check_temporary_folder(), check_clock()};
  for (Finding& finding : check_gpus()) {
    findings.push_back(std::move(finding));
  }
  findings.push_back(check_data(data));
  return findings;
}

}  // namespace isochron::emulate
