// Runs `isochron launch` with real workers under mpirun, and looks at what becomes of them.
#include "isochron/emulate/launch.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulate/await.h"
#include "tests/emulate/control_groups.h"
#include "tests/own_path.h"
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/emulate/listeners.h"
#include "isochron/emulate/mpirun.h"
#include "isochron/emulate/process.h"
#include "isochron/io/join_requests.h"
#include "isochron/io/step_file.h"

namespace isochron::emulate {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Two workers whose quotas at the start are 2.5 and 5 ms of 10 ms.
constexpr const char* kPair = R"(
[[worker]]
name = "slow"
cores = 0.25
max_batch = 64
gpu_share = 25
[[worker]]
name = "fast"
cores = 0.5
kind = "gpu"
granularity = 8
)";

// What a worker writes into a file of its rank; then it waits until the file "go" is there.
const std::string kReport =
    "{ env | grep -E '^(ISOCHRON|OMP_NUM|CUDA_MPS)'; echo pid=$$; echo leader=$PPID; "
    "cat $ISOCHRON_CGROUP/cpu.cfs_quota_us $ISOCHRON_CGROUP/cpu.max 2>/dev/null | sed s/^/quota=/; "
    "grep -qsx $$ $ISOCHRON_CGROUP/cgroup.procs && echo inside; } > report.tmp$OMPI_COMM_WORLD_RANK; "
    "mv report.tmp$OMPI_COMM_WORLD_RANK report.$OMPI_COMM_WORLD_RANK; ";
const std::string kWait = "while [ ! -e go ]; do sleep 0.01; done; ";

class LaunchTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    fs::current_path(folder_);
    // Where there is a leak checker it traces a process that ends, and may wait for ever if the duty cycle stops and
    // continues that process meanwhile.
    setenv("ASAN_OPTIONS", "detect_leaks=0", /*overwrite=*/1);
    try {
      if (find_mpirun("").family != MpiFamily::kOpenMpi5) {
        GTEST_SKIP() << "the mpirun here is not of Open MPI 5";
      }
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  void TearDown() override {
    if (launcher_ > 0) {
      kill(launcher_, SIGKILL);
      waitpid(launcher_, nullptr, 0);
    }
    fs::current_path("/");
    fs::remove_all(folder_);
  }

  /// `isochron launch OPTIONS -- sh -c SCRIPT`, on the cluster of the file's text if there is one.
  void begin(std::vector<std::string> options, const std::string& script, const std::string& cluster = "") {
    std::vector<std::string> words{ISOCHRON_PROGRAM, "launch", "--quiet"};
    if (!cluster.empty()) {
      std::ofstream("cluster.toml") << cluster;
      words.insert(words.end(), {"--cluster", "cluster.toml"});
    }
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "sh", "-c", script});
    launcher_ = start(words);
  }
  /// The launcher's status; -1 if it does not end.
  int end() {
    int status = 0;
    if (!await([&] { return waitpid(launcher_, &status, WNOHANG) == launcher_; })) {
      return -1;
    }
    launcher_ = 0;
    return exit_status(status);
  }
  int run(std::vector<std::string> options, const std::string& script, const std::string& cluster = "") {
    begin(std::move(options), script, cluster);
    return end();
  }

  /// What worker `rank` reported, once it has.
  std::string report(int rank) {
    const std::string file = "report." + std::to_string(rank);
    EXPECT_TRUE(await([&] { return fs::exists(file); }));
    return content(file);
  }
  /// The value of a variable in a report.
  static std::string value(const std::string& report, const std::string& name) {
    const std::size_t start = report.find(name + "=");
    if (start == std::string::npos) {
      return "";
    }
    const std::size_t first = start + name.size() + 1;
    return report.substr(first, report.find('\n', first) - first);
  }
  /// In microseconds, as the kernel has it now.
  static std::string quota(const std::string& report) {
    const std::string group = value(report, "ISOCHRON_CGROUP");
    const std::string text = content(group + "/cpu.cfs_quota_us") + content(group + "/cpu.max");
    return text.substr(0, text.find_first_of(" \n"));
  }
  static void publish(const std::string& report, std::int64_t step) {
    io::StepFile::open(value(report, "ISOCHRON_STEP_FILE")).publish(step);
  }

  const fs::path folder_ = own_path();
  pid_t launcher_ = 0;
};

TEST_F(LaunchTest, PutsEveryWorkerIntoItsOwnLimits) {
  if (const std::string reason = why_no_control_groups(); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  ASSERT_EQ(run({}, kReport, kPair), 0);
  const std::string slow = report(0);
  const std::string fast = report(1);
  EXPECT_THAT(
      slow,
      AllOf(
          HasSubstr("inside\n"),
          HasSubstr("quota=2500"),
          HasSubstr("ISOCHRON_CLUSTER=cluster\n"),
          HasSubstr("ISOCHRON_WORKER_NAME=slow\n"),
          HasSubstr("ISOCHRON_WORKER_KIND=cpu\n"),
          HasSubstr("ISOCHRON_WORKER_CORES=0.25\n"),
          HasSubstr("ISOCHRON_MAX_BATCH=64\n"),
          HasSubstr("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n"),
          HasSubstr("OMP_NUM_THREADS=1\n")));
  EXPECT_THAT(
      fast,
      AllOf(
          HasSubstr("inside\n"),
          HasSubstr("quota=5000"),
          HasSubstr("ISOCHRON_WORKER_NAME=fast\n"),
          HasSubstr("ISOCHRON_WORKER_KIND=gpu\n"),
          HasSubstr("ISOCHRON_GRANULARITY=8\n"),
          Not(HasSubstr("ISOCHRON_MAX_BATCH"))));
  EXPECT_FALSE(fs::exists(fs::path(value(slow, "ISOCHRON_CGROUP")).parent_path()));
  EXPECT_FALSE(fs::exists(fs::path(value(slow, "ISOCHRON_STEP_FILE")).parent_path()));
}

TEST_F(LaunchTest, PassesTheStatusOfTheJobOn) {
  EXPECT_EQ(run({"-n", "2"}, "exit 3"), 3);
  EXPECT_EQ(run({"-n", "2"}, "kill -SEGV $$"), 128 + SIGSEGV) << "mpirun says 0";
  EXPECT_EQ(run({"-n", "2"}, "[ $OMPI_COMM_WORLD_RANK = 0 ] || kill -KILL $$"), 0) << "one of them reached the end";
}

TEST_F(LaunchTest, ChangesQuotasWithTheStepAndBack) {
  if (const std::string reason = why_no_control_groups(); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  begin({}, kReport + kWait, std::string(kPair) + "[[change]]\nat_step = 5\nworker = 'fast'\ncores = 0.75\n");
  const std::string slow = report(0);
  const std::string fast = report(1);
  publish(slow, 4);
  EXPECT_EQ(quota(fast), "5000");
  publish(slow, 6);
  EXPECT_TRUE(await([&] { return quota(fast) == "7500"; }));
  EXPECT_EQ(quota(slow), "2500");
  publish(slow, 0);
  EXPECT_TRUE(await([&] { return quota(fast) == "5000"; }));
  std::ofstream("go") << "";
  EXPECT_EQ(end(), 0);
}

TEST_F(LaunchTest, FollowsTheClustersFile) {
  for (const char* const throttle : {"auto", "duty-cycle"}) {
    SCOPED_TRACE(throttle);
    begin({"--throttle", throttle}, kReport + kWait, kPair);
    const std::string slow = report(0);
    const std::string fast = report(1);
    const fs::path folder = fs::path(value(slow, "ISOCHRON_STEP_FILE")).parent_path();
    std::ofstream("next.toml") << "[[worker]]\nname = 'new'\ncores = 0.2\n[[worker]]\nname = 'fast'\ncores = 0.75\n";
    fs::rename("next.toml", "cluster.toml");
    EXPECT_TRUE(await([&] { return has_ended(std::stoi(value(slow, "pid"))); })) << "it is gone from the file";
    std::optional<io::JoinRequestFile> request;
    EXPECT_TRUE(await([&] { return (request = io::take_join_request(folder)).has_value(); }));
    ASSERT_TRUE(request);
    EXPECT_THAT(request->command, testing::IsSupersetOf({"enter", "--worker", "2"}));
    EXPECT_THAT(content(folder / "2.environment"), HasSubstr("ISOCHRON_WORKER_NAME=new"));
    EXPECT_TRUE(value(fast, "ISOCHRON_CGROUP").empty() || await([&] { return quota(fast) == "7500"; }));
    EXPECT_FALSE(has_ended(std::stoi(value(fast, "pid"))));
    std::ofstream("go") << "";
    EXPECT_EQ(end(), 0);
    for (const char* const file : {"go", "report.0", "report.1"}) {
      fs::remove(file);
    }
  }
}

TEST_F(LaunchTest, StopsContinuesAndKillsWorkersAtTheirStep) {
  begin(
      {},
      kReport + kWait,
      std::string(kPair) + "[[change]]\nat_step = 1\nworker = 'slow'\nevent = 'stop'\n" +
          "[[change]]\nat_step = 2\nworker = 'slow'\nevent = 'continue'\n" +
          "[[change]]\nat_seconds = 0.0\nworker = 'fast'\nevent = 'kill'\n");
  const std::string slow = report(0);
  // The leader of its group: the shell itself cannot be stopped while it starts a program.
  const pid_t leader = std::stoi(value(slow, "leader"));
  const pid_t killed = std::stoi(value(report(1), "pid"));
  EXPECT_FALSE(has_ended(killed)) << "time begins with the first step";
  publish(slow, 1);
  EXPECT_TRUE(await([&] { return process_state(leader) == "T"; }));
  EXPECT_TRUE(await([&] { return has_ended(killed); }));
  publish(slow, 2);
  EXPECT_TRUE(await([&] { return process_state(leader) != "T"; }));
  std::ofstream("go") << "";
  EXPECT_EQ(end(), 0);
}

TEST_F(LaunchTest, PassesSignalsOnAndWaits) {
  for (const char* const throttle : {"auto", "duty-cycle"}) {
    begin(
        {"--throttle", throttle}, "trap 'touch saved.$OMPI_COMM_WORLD_RANK; exit 143' TERM; " + kReport + kWait, kPair);
    const std::string slow = report(0);
    report(1);
    kill(launcher_, SIGTERM);
    EXPECT_EQ(end(), 143) << throttle;
    EXPECT_TRUE(fs::exists("saved.0") && fs::exists("saved.1")) << throttle;
    EXPECT_FALSE(fs::exists(fs::path(value(slow, "ISOCHRON_STEP_FILE")).parent_path())) << throttle;
    for (const char* const file : {"saved.0", "saved.1", "report.0", "report.1"}) {
      fs::remove(file);
    }
  }
}

// As under nohup, whose terminal goes.
TEST_F(LaunchTest, LeavesASignalAloneThatWasIgnoredBefore) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  begin({"-n", "1"}, kReport + kWait);
  std::signal(SIGHUP, before);
  report(0);
  kill(launcher_, SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::ofstream("go").close();
  EXPECT_EQ(end(), 0);
}

// What a worker's program opens is its own matter, mpirun's ports are for the job's processes alone.
TEST_F(LaunchTest, KeepsMpirunsPortsOnLoopback) {
  begin({"-n", "2"}, kReport + "echo \"preload=$LD_PRELOAD\" > preload.$OMPI_COMM_WORLD_RANK; " + kWait);
  report(0);
  report(1);
  ASSERT_TRUE(await([] { return content("preload.1") != ""; }));
  const std::vector<Listener> listeners = listeners_of_job(std::to_string(launcher_));
  const Outcome doctor = emulate::run({ISOCHRON_PROGRAM, "doctor", "--job", std::to_string(launcher_)});
  std::ofstream("go").close();
  EXPECT_EQ(end(), 0);
  EXPECT_FALSE(listeners.empty());
  for (const Listener& one : listeners) {
    EXPECT_TRUE(one.loopback) << one.program << " listens on " << one.address << ":" << one.port;
    EXPECT_THAT(doctor.output, HasSubstr(one.address + ":" + std::to_string(one.port) + ", MPI's daemon"));
  }
  EXPECT_EQ(doctor.status, 0);
  EXPECT_THAT(doctor.output, Not(HasSubstr("warn")));
  EXPECT_EQ(content("preload.1"), "preload=\n");
}

TEST_F(LaunchTest, DoesNotWaitForTheDead) {
  begin(
      {},
      "trap 'exit 143' TERM; " + kReport + kWait,
      std::string(kPair) + "[[change]]\nat_step = 0\nworker = 'fast'\nevent = 'kill'\n");
  const std::string slow = report(0);
  const pid_t killed = std::stoi(value(report(1), "pid"));
  publish(slow, 0);
  EXPECT_TRUE(await([&] { return has_ended(killed); }));
  kill(launcher_, SIGTERM);
  EXPECT_EQ(end(), 143);
}

TEST_F(LaunchTest, EndsWorkersThatDoNotListenOnTheSecondSignal) {
  begin({"-n", "1"}, "trap '' TERM INT; " + kReport + kWait);
  const pid_t pid = std::stoi(value(report(0), "pid"));
  kill(launcher_, SIGTERM);
  kill(launcher_, SIGINT);
  EXPECT_EQ(end(), 128 + SIGKILL);
  EXPECT_TRUE(has_ended(pid));
}

TEST_F(LaunchTest, EndsWorkersThatDoNotListenInTime) {
  begin({"-n", "1", "--stop-timeout", "2"}, "trap '' TERM; " + kReport + kWait);
  const pid_t pid = std::stoi(value(report(0), "pid"));
  kill(launcher_, SIGTERM);
  EXPECT_EQ(end(), 128 + SIGKILL);
  EXPECT_TRUE(has_ended(pid));
}

// As a job of PyTorch does. That time is for the start, and for those who join.
TEST_F(LaunchTest, LeavesWorkersAloneThatPublishStepsAndNoteNothingElse) {
  begin({"-n", "2", "--start-timeout", "1"}, kReport + kWait);
  const std::string first = report(0);
  report(1);
  publish(first, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  std::ofstream("go").close();
  EXPECT_EQ(end(), 0);
}

// It has not said yet that it takes part in a job, and waits for nobody who would miss it.
TEST_F(LaunchTest, EndsAnOnlyWorkerThatIsStoppedBeforeItNotesAnything) {
  begin({"-n", "1", "--start-timeout", "2"}, kReport + kWait);
  kill(std::stoi(value(report(0), "pid")), SIGSTOP);
  EXPECT_EQ(end(), 128 + SIGKILL);
}

// Who has done its part waits for the stopped one, in MPI_Finalize say, where nobody evicts anybody.
TEST_F(LaunchTest, EndsAStoppedWorkerThatTheOthersWaitForAtTheEnd) {
  begin(
      {"-n", "2", "--start-timeout", "2"},
      kReport + "[ $OMPI_COMM_WORLD_RANK = 1 ] || touch $ISOCHRON_JOB_FOLDER/$$.ended; " + kWait);
  report(0);
  const pid_t stopped = std::stoi(value(report(1), "pid"));
  kill(stopped, SIGSTOP);
  EXPECT_TRUE(await([&] { return kill(stopped, 0) != 0; }));
  std::ofstream("go").close();
  EXPECT_NE(end(), -1);
}

// It is stopped by the duty cycle for most of the time, and computes in between.
TEST_F(LaunchTest, LeavesAWorkerAloneThatTheDutyCycleStops) {
  begin(
      {"--throttle", "duty-cycle", "--start-timeout", "4"},
      kReport + "while [ ! -e go ]; do :; done",
      "[[worker]]\ncores = 0.02\n");
  report(0);
  std::this_thread::sleep_for(std::chrono::seconds(10));
  std::ofstream("go").close();
  EXPECT_EQ(end(), 0);
}

// A stopped one starts nobody, as one that hangs.
TEST_F(LaunchTest, DoesNotWaitForAnMpirunThatHangsBeforeAnyWorkerHasBegun) {
  const std::string real = find_mpirun("").path;
  std::ofstream("mpirun") << "#!/bin/sh\n[ \"$1\" = --version ] && exec '" << real << "' \"$@\"\necho > hangs\n"
                          << "kill -STOP $$\n";
  fs::permissions("mpirun", fs::perms::owner_all);
  for (const bool twice : {false, true}) {
    begin({"-n", "1", "--stop-timeout", twice ? "300" : "2", "--mpirun", (folder_ / "mpirun").string()}, "true");
    ASSERT_TRUE(await([] { return fs::exists("hangs"); }));
    kill(launcher_, SIGTERM);
    if (twice) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // equal signals that wait are one
      kill(launcher_, SIGTERM);
    }
    EXPECT_EQ(end(), 128 + SIGKILL);
    fs::remove("hangs");
  }
}

TEST_F(LaunchTest, DoesNotWaitForAnMpirunThatOutlivesItsWorkers) {
  const std::string real = find_mpirun("").path;
  std::ofstream("mpirun") << "#!/bin/sh\n[ \"$1\" = --version ] && exec '" << real << "' \"$@\"\n'" << real
                          << "' \"$@\"\nexec sleep 100\n";
  fs::permissions("mpirun", fs::perms::owner_all);
  EXPECT_EQ(run({"-n", "2", "--mpirun", (folder_ / "mpirun").string()}, kReport), 0);
  EXPECT_THAT(report(1), HasSubstr("pid="));
}

TEST_F(LaunchTest, RemovesWhatAKilledLauncherLeft) {
  begin({}, kReport + kWait, kPair);
  const std::string slow = report(0);
  const pid_t first = std::stoi(value(slow, "leader"));
  const pid_t second = std::stoi(value(report(1), "leader"));
  const pid_t launcher = launcher_;
  kill(launcher, SIGKILL);
  EXPECT_EQ(end(), 128 + SIGKILL);
  EXPECT_TRUE(await([&] { return has_ended(first) && has_ended(second); })) << "mpirun ends with its launcher";
  const auto its_shared_memory = [stem = "isochron-" + std::to_string(launcher) + "-"] {
    return std::ranges::count_if(fs::directory_iterator("/dev/shm"), [&](const fs::directory_entry& entry) {
      return entry.path().filename().string().starts_with(stem);
    });
  };
  EXPECT_EQ(its_shared_memory(), 1) << "nobody was there to remove it";
  EXPECT_EQ(run({"-n", "1"}, "true"), 0);
  EXPECT_EQ(its_shared_memory(), 0);
  EXPECT_FALSE(fs::exists(fs::path(value(slow, "ISOCHRON_CGROUP")).parent_path()));
  EXPECT_FALSE(fs::exists(fs::path(value(slow, "ISOCHRON_STEP_FILE")).parent_path()));
}

TEST_F(LaunchTest, RemovesTheSharedMemoryOfMpiProcessesThatWereKilled) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string stem = std::string("/dev/shm/sm_segment.") + host.data() + "." + std::to_string(geteuid()) + ".";
  const fs::path dead = stem + "isochrontest.0";
  const fs::path used = stem + "isochrontest.1";
  const fs::path fresh = stem + "isochrontest.2";
  for (const fs::path& segment : {dead, used, fresh}) {
    std::ofstream(segment) << std::string(4096, '\0');
  }
  const auto old = fs::file_time_type::clock::now() - std::chrono::minutes(2);
  fs::last_write_time(dead, old);
  fs::last_write_time(used, old);
  const int file = ::open(used.c_str(), O_RDONLY | O_CLOEXEC);
  void* const memory = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  EXPECT_EQ(run({"-n", "1"}, "true"), 0);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(used)) << "somebody has it in use";
  EXPECT_TRUE(fs::exists(fresh)) << "somebody may be about to use it";
  munmap(memory, 4096);
  close(file);
  fs::remove(used);
  fs::remove(fresh);
}

TEST_F(LaunchTest, WorksWithoutControlGroups) {
  setenv("ASAN_OPTIONS", "detect_leaks=0", /*overwrite=*/1);  // its tracer may be stopped by the duty cycle, for good
  EXPECT_EQ(run({"--throttle", "duty-cycle"}, kReport, kPair), 0);
  EXPECT_THAT(report(1), AllOf(HasSubstr("ISOCHRON_WORKER_NAME=fast\n"), Not(HasSubstr("ISOCHRON_CGROUP"))));
}

}  // namespace
}  // namespace isochron::emulate
