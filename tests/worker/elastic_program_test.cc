// The real program under `isochron launch`, with workers that are killed, stopped, cut off and added from outside. What
// the run log says must prove that every sample was used once.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "tests/shell_test.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"
#include "isochron/emulate/network.h"
#include "isochron/emulate/owner.h"
#include "isochron/engine/checkpoint.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::worker {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

// 16 steps an epoch, of some 50 ms.
const std::string kTrain =
    "train --dataset synthetic --model cnn:width=8 --train-samples 2048 --test-samples 100 --global-batch 128 "
    "--learning-rate 0.02 --epochs 100 --eval-every 3 --log run.jsonl --progress off ";

class ElasticProgramTest : public ShellTest {
 protected:
  // The launcher's folder is in the test's own, so that the script finds the workers.
  [[nodiscard]] Outcome script(const std::string& launch, const std::string& meanwhile) const {
    return script_of("launch " + launch, meanwhile);
  }
  [[nodiscard]] Outcome script_of(const std::string& command, const std::string& meanwhile) const {
    const std::string wait_for_steps =
        "after() { while [ \"$(cat run.jsonl 2>/dev/null | wc -l)\" -lt $1 ]; do sleep 0.05; done; };"
        "pid() { cut -d' ' -f1 isochron-*/$1.pids; };"
        // The process that comes in the place of worker $1, whose process was $2, or the first one there.
        "next() { until p=$(pid $1 2>/dev/null) && [ -n \"$p\" ] && [ \"$p\" != \"$2\" ]; do sleep 0.01; done; echo "
        "$p; };"
        "said() { until grep -q \"$1\" $2; do sleep 0.05; done; };"
        "hold() { python3 '" ISOCHRON_SOURCE_DIR "/tests/worker/hold_thread.py' isochron-mpi $*; echo $? >held; };";
    std::ofstream(folder_ / "script") << wait_for_steps << "export TMPDIR=$PWD OMP_NUM_THREADS=1\n"
                                      << "timeout -s KILL 240 '" ISOCHRON_PROGRAM "' " << command << " & job=$!\n"
                                      << "launcher() { pgrep -P $job; };\n"
                                      << meanwhile << "\nwait $job\n";
    return shell("timeout -s KILL 300 bash script");
  }

  // The system forbids it.
  [[nodiscard]] bool may_not_hold() const { return content(folder_ / "held") == "77\n"; }

  void expect_proven_ledger() const {
    const Outcome ledger = shell("'" ISOCHRON_PROGRAM "' ledger run.jsonl");
    EXPECT_EQ(ledger.status, 0) << ledger.output << ledger.errors;
  }

  [[nodiscard]] std::vector<std::string> events() const {
    std::ifstream stream(folder_ / "run.jsonl");
    io::RunLogReader reader(stream, "run.jsonl");
    std::vector<std::string> events;
    while (const auto line = reader.next()) {
      if (const auto* const event = std::get_if<EventRecord>(&*line)) {
        events.push_back(event->event + " " + event->words);
      }
    }
    return events;
  }

  // With so many workers.
  [[nodiscard]] StepRecord first_step_of(std::size_t workers) const {
    std::ifstream stream(folder_ / "run.jsonl");
    io::RunLogReader reader(stream, "run.jsonl");
    while (const auto line = reader.next()) {
      const auto* const step = std::get_if<StepRecord>(&*line);
      if (step != nullptr && step->workers.size() == workers) {
        return *step;
      }
    }
    return {};
  }

  [[nodiscard]] std::int64_t count_steps() const {
    std::ifstream stream(folder_ / "run.jsonl");
    io::RunLogReader reader(stream, "run.jsonl");
    std::int64_t count = 0;
    while (const auto line = reader.next()) {
      count += std::holds_alternative<StepRecord>(*line) ? 1 : 0;
    }
    return count;
  }

  // The step at which the job went on when it was started again; -1: it was not.
  [[nodiscard]] std::int64_t resumed_at() const {
    std::ifstream stream(folder_ / "run.jsonl");
    io::RunLogReader reader(stream, "run.jsonl");
    while (const auto line = reader.next()) {
      const auto* const event = std::get_if<EventRecord>(&*line);
      if (event != nullptr && event->event == "resume") {
        return event->step;
      }
    }
    return -1;
  }

  [[nodiscard]] std::int64_t last_step() const {
    std::ifstream stream(folder_ / "run.jsonl");
    io::RunLogReader reader(stream, "run.jsonl");
    std::int64_t last = -1;
    while (const auto line = reader.next()) {
      if (const auto* const step = std::get_if<StepRecord>(&*line)) {
        last = step->step;
      }
    }
    return last;
  }
};

TEST_F(ElasticProgramTest, ALostWorkerIsReplaced) {
  const Outcome outcome = script("-n 3 --replace 1 -- " + kTrain + "--steps 300", "after 10; kill -9 $(pid 1)");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(last_step(), 299);
  EXPECT_THAT(events(), Contains("death w1"));
  EXPECT_THAT(events(), Contains("join w1"));
  EXPECT_THAT(outcome.errors, HasSubstr("was lost, and another is started in its place"));
  expect_proven_ledger();
}

// Another worker goes on with the log, the evaluations and the result.
TEST_F(ElasticProgramTest, TheFirstWorkerMayBeLostToo) {
  const Outcome outcome = script(
      "-n 3 -- " + kTrain + "--steps 60 --json result.json", "after 10; kill -9 $(pid 0); after 30; kill -9 $(pid 1)");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(last_step(), 59);
  EXPECT_THAT(events(), testing::ElementsAre("death w0", "death w1"));
  EXPECT_TRUE(fs::exists(folder_ / "result.json"));
  EXPECT_THAT(outcome.output, HasSubstr("isochron     "));
  expect_proven_ledger();
}

TEST_F(ElasticProgramTest, AWorkerIsAddedOnRequest) {
  const Outcome outcome =
      script("-n 2 -- " + kTrain + "--steps 300", "after 10; '" ISOCHRON_PROGRAM "' launch --attach $(launcher) -n 1");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(last_step(), 299);
  EXPECT_THAT(events(), Contains("join w2"));
  // Its first share is a cautious one.
  const std::vector<WorkerStep> shares = first_step_of(3).workers;
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_GE(shares[2].batch, 1);
  EXPECT_LE(shares[2].batch, std::max(shares[0].batch, shares[1].batch));
  expect_proven_ledger();
}

// Every other round has one sample, of which a newcomer gets none. It must save when the others do.
TEST_F(ElasticProgramTest, WhoJoinsInARoundWithoutSamplesSavesWithTheOthers) {
  const Outcome outcome = script(
      "-n 2 -- train --dataset synthetic --model mlp:hidden=16 --train-samples 129 --test-samples 100 "
      "--global-batch 128 --epochs 100000 --eval-every 0 --log run.jsonl --progress off --sync local --round-steps 1 "
      "--checkpoints saved --checkpoint-every 40 --timeout 20",
      "after 50; for joined in 1 2 3 4; do '" ISOCHRON_PROGRAM
      "' launch --attach $(launcher) -n 1; until [ $(grep -c '\"join\"' run.jsonl) -ge $joined ]; do sleep 0.1; done; "
      "done; after $(($(wc -l <run.jsonl) + 100)); kill -TERM $(launcher)");
  EXPECT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_THAT(events(), testing::ElementsAre("join w2", "join w3", "join w4", "join w5"));
  expect_proven_ledger();
}

// What looks at runs finds the log of a job by its launcher.
TEST_F(ElasticProgramTest, TheJobsLogIsFoundByItsLauncher) {
  const Outcome outcome = script(
      "-n 2 -- " + kTrain + "--steps 60",
      "after 10; '" ISOCHRON_PROGRAM "' top $(launcher) >top.txt 2>&1; echo $? >status");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(content(folder_ / "status"), "0\n") << content(folder_ / "top.txt");
  EXPECT_THAT(content(folder_ / "top.txt"), HasSubstr("w1"));
}

// mpirun, workers and those who joined; also without our launcher, where mpirun is another matter.
TEST_F(ElasticProgramTest, OnOneHostNothingListensButOnLoopback) {
  const Outcome launched = script(
      "-n 2 --replace 1 -- " + kTrain,
      "after 10; kill -9 $(pid 1); said '\"join\"' run.jsonl;"
      "'" ISOCHRON_PROGRAM "' doctor --job $(launcher) >ports 2>&1; kill -TERM $(launcher)");
  EXPECT_EQ(launched.status, 143) << launched.errors;
  const std::string ports = content(folder_ / "ports");
  EXPECT_THAT(ports, testing::ContainsRegex("ok +process [0-9]+, isochron-worker +127.0.0.1:[0-9]+, MPI's transport"));
  EXPECT_THAT(ports, testing::ContainsRegex("ok +process [0-9]+, prterun +127.0.0.1:[0-9]+, MPI's daemon"));
  EXPECT_THAT(ports, testing::Not(HasSubstr("warn")));

  const Outcome bare = shell(
      "rm run.jsonl; mpirun=$('" ISOCHRON_PROGRAM
      "' doctor | sed -n 's/.* at \\(.*mpirun\\)$/\\1/p'); "
      "OMP_NUM_THREADS=1 $mpirun -n 2 --oversubscribe --bind-to none $([ $(id -u) = 0 ] && echo --allow-run-as-root) "
      "'" ISOCHRON_PROGRAM "' " +
      kTrain +
      "& job=$!; while ! grep -qs step run.jsonl; do sleep 0.1; done;"
      "'" ISOCHRON_PROGRAM "' doctor --job $job >ports; kill -9 $job; grep isochron-worker ports");
  EXPECT_THAT(bare.output, HasSubstr(" 127.0.0.1:")) << bare.errors;
  EXPECT_THAT(bare.output, testing::Not(HasSubstr("warn")));
}

TEST_F(ElasticProgramTest, AStoppedWorkerIsEvicted) {
  const Outcome outcome = script(
      "-n 3 -- " + kTrain + "--steps 40 --timeout 8", "after 10; kill -STOP $(pid 2); sleep 14; kill -CONT $(pid 2)");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(last_step(), 39);
  EXPECT_THAT(events(), Contains("evicted w2"));
  EXPECT_THAT(outcome.errors, HasSubstr("has kept the others waiting for"));
  expect_proven_ledger();
}

// Every survivor calls it, and `kill` of a process that is gone is an error.
TEST_F(ElasticProgramTest, AFenceThatFailsForWhoeverComesLastDoesNoHarm) {
  const Outcome outcome = script(
      "-n 3 -- " + kTrain + "--steps 40 --timeout 8 --fence 'mkdir {pid} && kill -9 {pid}'",
      "after 10; kill -STOP $(pid 2)");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(last_step(), 39);
  EXPECT_THAT(events(), testing::ElementsAre("evicted w2")) << "nobody else has left";
  expect_proven_ledger();
}

// Those who wait for the one that calls it would be ended by their watchdog after four time-outs and 10 s.
TEST_F(ElasticProgramTest, AFenceThatDoesNotEndIsGivenUpBeforeOthersAreEnded) {
  const Outcome outcome = script(
      "-n 3 -- " + kTrain + "--steps 40 --timeout 4 --fence 'mkdir {pid} && sleep 60; kill -9 {pid}'",
      "after 10; kill -STOP $(pid 2)");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(last_step(), 39);
  EXPECT_THAT(events(), testing::ElementsAre("evicted w2"));
  expect_proven_ledger();
}

// NCCL's kernels would wait for ever for one that is lost.
TEST_F(ElasticProgramTest, OnGpusTheOthersGoOnWithoutWorkersThatAreKilledOrStopped) {
  if (shell("nvidia-smi -L").status != 0) {
    GTEST_SKIP() << "no GPU";
  }
  const Outcome outcome = script(
      "-n 3 -- " + kTrain + "--device cuda --steps 120 --timeout 5",
      "after 10; kill -9 $(pid 1); after 40; kill -STOP $(pid 2)");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(events(), Contains(StartsWith("death")));
  EXPECT_THAT(events(), Contains(StartsWith("evicted")));
  EXPECT_EQ(last_step(), 119);
  expect_proven_ledger();
}

// A worker whose network takes nothing any more lives and computes, and sees all others as silent: it could kill them
// as well as they could kill it. The larger part goes on; of equal halves, the one with the first worker.
TEST_F(ElasticProgramTest, AWorkerWhoseNetworkFailsIsEvicted) {
  try {
    const emulate::Network probe(emulate::owner_name() + "-probe", {{.bytes_per_second = 1e9}});
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  struct Case {
    int workers;
    int cut_off;
  };
  for (const auto [workers, cut_off] : {Case{3, 0}, Case{2, 1}}) {
    SCOPED_TRACE(std::to_string(cut_off) + " of " + std::to_string(workers));
    const std::string name = "w-" + std::to_string(cut_off);
    std::ofstream(folder_ / "cluster.toml")
        << "[[worker]]\nname = 'w'\ncount = " << workers << "\ncores = 0.5\nnetwork = { rate = \"1gbit\" }\n";
    const Outcome outcome = script(
        "--cluster cluster.toml -- " + kTrain + "--steps 40 --timeout 8",
        "after 10; ip -n $(basename isochron-*)-" + std::to_string(cut_off) + " link set eth0 down");
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_EQ(last_step(), 39);
    EXPECT_THAT(events(), Contains("evicted " + name)) << outcome.errors;
    // On a busy machine the time-out comes before the warning, which waits for five steps.
    EXPECT_THAT(
        outcome.errors,
        testing::ContainsRegex(
            "rank " + std::to_string(cut_off) + " on [^ ]+ (.process [0-9]+. has kept the others|.silent.)"));
    expect_proven_ledger();
    fs::remove(folder_ / "run.jsonl");
  }
}

TEST_F(ElasticProgramTest, WithoutRecoveryTheJobStartsAgainFromItsCheckpoint) {
  const Outcome outcome = script(
      "-n 3 --no-recovery --restarts 2 -- " + kTrain + "--steps 40 --checkpoints saved --checkpoint-every 5",
      "after 13; kill -9 $(pid 1)");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(last_step(), 39);
  EXPECT_THAT(outcome.errors, HasSubstr("it is started again from its last checkpoint"));
  EXPECT_THAT(events(), Contains(StartsWith("resume")));
  expect_proven_ledger();
}

// MPI cannot begin without one of its processes, and waits for it for ever.
TEST_F(ElasticProgramTest, AJobThatLosesAWorkerBeforeItsFirstStepIsStartedAgain) {
  for (const auto& [options, delay] : {std::pair("-n 3", "0"), {"-n 3", "0.3"}, {"-n 3 --replace 2", "0"}}) {
    SCOPED_TRACE(std::string(options) + ", " + delay);
    const Outcome outcome = script(
        std::string(options) + " -- " + kTrain + "--steps 20",
        "victim=$(next 1); sleep " + std::string(delay) + "; [ ! -s run.jsonl ] && kill -9 $victim");
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr("worker \"w1\" was lost (status 137) before the first step"));
    EXPECT_EQ(last_step(), 19);
    expect_proven_ledger();
    fs::remove(folder_ / "run.jsonl");
  }
}

TEST_F(ElasticProgramTest, AJobWithAWorkerThatDoesNotStartInTimeIsStartedAgain) {
  const Outcome outcome = script("-n 3 --start-timeout 20 -- " + kTrain + "--steps 20", "kill -STOP $(next 1)");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("there was no first step within 20 s"));
  EXPECT_EQ(last_step(), 19);
  expect_proven_ledger();
}

// They publish no step before all have come together, and programs of one's own never do.
TEST_F(ElasticProgramTest, AComparisonThatLosesAWorkerWhileItStartsIsStartedAgain) {
  std::ofstream(folder_ / "pair.toml") << "[[worker]]\ncores = 0.5\n[[worker]]\nname = \"b\"\ncores = 0.5\n";
  const Outcome outcome = script_of(
      "compare --cluster pair.toml --throttle duty-cycle --dataset synthetic --model mlp:hidden=16 --train-samples 512 "
      "--test-samples 100 --global-batch 64 --policy uniform --steps 4 --rounds 1 --solo-seconds 0",
      "kill -9 $(next 1)");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("worker \"b\" was lost (status 137) before the first step"));
}

TEST_F(ElasticProgramTest, AProgramOfOnesOwnThatLosesAWorkerWhileItStartsIsStartedAgain) {
  const std::string own = " -- '" ELASTIC_WORKER "' '" + folder_.string() + "' steps=4";
  const Outcome killed = script("-n 3" + own, "kill -9 $(next 1)");
  ASSERT_EQ(killed.status, 0) << killed.errors;
  EXPECT_THAT(killed.errors, HasSubstr("worker \"w1\" was lost (status 137) before the first step"));
  const Outcome stopped = script("-n 3 --start-timeout 20" + own, "kill -STOP $(next 1)");
  ASSERT_EQ(stopped.status, 0) << stopped.errors;
  EXPECT_THAT(stopped.errors, HasSubstr("there was no first step within 20 s"));
}

// The others' votes end only if MPI knows of the death at once.
TEST_F(ElasticProgramTest, AWorkerMayBeLostRightAfterTheRequestToEnd) {
  const Outcome outcome = script(
      "-n 3 -- " + kTrain + "--checkpoints saved",
      "after 10; victim=$(pid 1); kill -TERM $(launcher); sleep 0.02; kill -9 $victim");
  ASSERT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("saved in saved"));
  EXPECT_FALSE(fs::is_empty(folder_ / "saved"));
  expect_proven_ledger();
}

// MPI_Comm_spawn waits for the process that has died, but nobody waits for MPI_Comm_spawn.
TEST_F(ElasticProgramTest, ANewcomerThatDiesWhileItStartsDoesNotKeepOthersOut) {
  const Outcome outcome = script(
      "-n 2 --replace 2 -- " + kTrain,
      "after 10; old=$(pid 1); kill -9 $old; new=$(next 1 $old); sleep 0.1; kill -9 $new;"
      "said '\"join\"' run.jsonl; kill -TERM $(launcher)");
  ASSERT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("a worker did not join: its process ended while it started"));
  EXPECT_THAT(events(), testing::ElementsAre("death w1", "join w1"));
  expect_proven_ledger();
}

TEST_F(ElasticProgramTest, ANewcomerThatDoesNotStartInTimeIsReplaced) {
  const Outcome outcome = script(
      "-n 2 --replace 5 --start-timeout 20 -- " + kTrain,
      "after 10; old=$(pid 1); kill -9 $old; kill -STOP $(next 1 $old); said '\"join\"' run.jsonl;"
      "kill -TERM $(launcher)");
  ASSERT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("worker \"w1\" did not join within 20 s: it is killed"));
  expect_proven_ledger();
}

TEST_F(ElasticProgramTest, ANewcomerThatIsStoppedDoesNotOutliveTheJob) {
  const Outcome outcome = script(
      "-n 2 --replace 1 -- " + kTrain + "--steps 60",
      "after 10; old=$(pid 1); kill -9 $old; new=$(next 1 $old); kill -STOP $new; wait $job; status=$?;"
      "grep -qs 'State:.[RSDTt]' /proc/$new/status && exit 99; exit $status");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("worker \"w1\" had not joined when the job ended: it is killed"));
  EXPECT_EQ(last_step(), 59);
  expect_proven_ledger();
}

// Nobody is left who could start those that are asked for.
TEST_F(ElasticProgramTest, AJobThatLosesAllWorkersAtOnceStartsAgainThoughTheyAreToBeReplaced) {
  const Outcome outcome = script(
      "-n 2 --replace 9 --restarts 1 -- " + kTrain + "--steps 40 --checkpoints saved --checkpoint-every 5",
      "after 13; kill -9 $(pid 0) $(pid 1)");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("it is started again from its last checkpoint"));
  EXPECT_EQ(last_step(), 39);
  expect_proven_ledger();
}

// None of them is left to evict the others, or to wait for them.
TEST_F(ElasticProgramTest, AJobWhoseWorkersAreAllStoppedStartsAgain) {
  const Outcome outcome = script(
      "-n 2 --replace 9 --restarts 1 --start-timeout 10 -- " + kTrain +
          "--steps 100 --checkpoints saved --checkpoint-every 5",
      "after 20; kill -STOP $(pid 0) $(pid 1)");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(last_step(), 99);
  EXPECT_THAT(outcome.errors, HasSubstr("has been stopped, and nobody else runs, for 10 s: it is killed"));
  expect_proven_ledger();
}

TEST_F(ElasticProgramTest, AJobWhoseOnlyWorkerIsStoppedStartsAgain) {
  const Outcome outcome = script(
      "-n 1 --restarts 1 --start-timeout 10 -- " + kTrain + "--steps 60 --checkpoints saved --checkpoint-every 5",
      "after 20; kill -STOP $(pid 0)");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(last_step(), 59);
  EXPECT_THAT(outcome.errors, HasSubstr("has been stopped, and nobody else runs, for 10 s: it is killed"));
  expect_proven_ledger();
}

// A hung mpirun starts nobody: a stopped one does the same. The workers train on, so nobody else would notice.
TEST_F(ElasticProgramTest, AJobWhoseMpirunHangsStartsAgainWhenAWorkerIsToJoin) {
  const Outcome outcome = script(
      "-n 2 --restarts 1 --start-timeout 10 -- " + kTrain + "--checkpoints saved",
      "after 10; launcher=$(launcher); hung=$(pgrep -P $launcher); kill -STOP $hung;"
      "'" ISOCHRON_PROGRAM
      "' launch --attach $launcher -n 1;"
      "until new=$(pgrep -P $launcher) && [ $new != $hung ]; do sleep 0.1; done;"
      "after $(($(wc -l < run.jsonl) + 20)); kill -TERM $launcher");
  EXPECT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("worker \"w2\" was asked for, and mpirun has started no process within 10 s"));
  expect_proven_ledger();
}

// By _exit, or as something in the user's own code may end a process: neither MPI nor the launcher may take it for one
// that is done.
TEST_F(ElasticProgramTest, WorkersThatLeaveWithStatusZeroBeforeTheEndCountAsLost) {
  const std::string leaving = "env LD_PRELOAD=" LEAVE_SILENTLY " '" ISOCHRON_PROGRAM "' ";
  const Outcome one =
      script("-n 3 --replace 1 -- " + leaving + kTrain + "--steps 100", "after 10; kill -USR2 $(pid 1)");
  ASSERT_EQ(one.status, 0) << one.errors;
  EXPECT_THAT(one.errors, HasSubstr("has left the job with status 0 before its end, and counts as lost"));
  EXPECT_THAT(one.errors, HasSubstr("was lost, and another is started in its place"));
  EXPECT_THAT(events(), Contains("join w1"));
  EXPECT_EQ(last_step(), 99);
  expect_proven_ledger();
  fs::remove(folder_ / "run.jsonl");
  const Outcome all = script("-n 2 -- " + leaving + kTrain + "--steps 100", "after 10; kill -USR2 $(pid 0) $(pid 1)");
  EXPECT_EQ(all.status, 137) << "nobody reached the end: " << all.errors;
}

// As a call of MPI does that never returns. No time-out is looked at, and the thread answers nobody.
TEST_F(ElasticProgramTest, AWorkerWhoseMpiHangsLeavesAndTheJobStartsAgainFromItsCheckpoint) {
  const Outcome outcome = script(
      "-n 1 --restarts 1 -- " + kTrain + "--steps 500 --timeout 2 --checkpoints saved --checkpoint-every 100000",
      "after 13; hold $(pid 0)");
  if (may_not_hold()) {
    GTEST_SKIP() << "a thread may not be held here: " << outcome.errors;
  }
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("the thread that drives MPI has made no progress for 19 s"));
  EXPECT_THAT(outcome.errors, HasSubstr("it is started again from its last checkpoint"));
  EXPECT_EQ(last_step(), 499);
  EXPECT_EQ(count_steps(), 500) << "it saved its state before it left: nothing is computed again";
  expect_proven_ledger();
}

// All of them at once, far from a checkpoint that is due: each waits for the other within the step, which nobody can
// finish. The mlp waits for gradients, the cnn for the statistics of a BatchNorm.
TEST_F(ElasticProgramTest, WorkersWhoseMpiHangsSaveTheStateBeforeTheStepUnderWay) {
  for (const std::string model : {"mlp:hidden=1024", "cnn:width=4,batch-norm=on"}) {
    fs::remove(folder_ / "run.jsonl");
    fs::remove_all(folder_ / "saved");
    fs::remove_all(folder_ / "undisturbed");
    const std::string train = "train --dataset synthetic --model " + model +
                              " --train-samples 1024 --test-samples 100 --global-batch 256 --learning-rate 0.02 "
                              "--epochs 100 --eval-every 0 --progress off --policy uniform --steps 60 "
                              "--checkpoint-every 1000 ";
    const Outcome outcome = script(
        "-n 2 --restarts 1 -- " + train + "--timeout 2 --log run.jsonl --checkpoints saved",
        "after 13; hold $(pid 0) $(pid 1)");
    if (may_not_hold()) {
      GTEST_SKIP() << "a thread may not be held here: " << outcome.errors;
    }
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr("the thread that drives MPI has made no progress for 19 s"));
    const std::int64_t resumed = resumed_at();
    EXPECT_THAT(
        outcome.errors,
        HasSubstr("this worker has saved the state before step " + std::to_string(resumed) + ", and leaves"));
    EXPECT_GE(resumed, 10);
    EXPECT_EQ(last_step(), 59);
    EXPECT_LE(count_steps(), 61) << "nothing is computed again, but for the step under way";
    expect_proven_ledger();

    // Bit by bit the same as if nothing had happened.
    const Outcome undisturbed = script("-n 2 -- " + train + "--checkpoints undisturbed", "");
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.errors;
    const Checkpoint saved = read_checkpoint(checkpoint_path(folder_ / "saved", 60));
    const Checkpoint expected = read_checkpoint(checkpoint_path(folder_ / "undisturbed", 60));
    ASSERT_EQ(saved.tensors.size(), expected.tensors.size());
    for (const auto& [name, tensor] : expected.tensors) {
      EXPECT_TRUE(saved.tensors.at(name).equal(tensor)) << name;
    }
  }
}

TEST_F(ElasticProgramTest, AClustersWorkersDieAndComeBackWhenItsFileSays) {
  std::ofstream(folder_ / "cluster.toml") << R"(
[[worker]]
name = "a"
cores = 0.5
[[worker]]
name = "b"
cores = 0.5
[[change]]
at_step = 8
worker = "b"
event = "kill"
[[change]]
at_step = 12
worker = "b"
event = "join"
)";
  const Outcome outcome = script("--cluster cluster.toml -- " + kTrain + "--steps 80", "");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(last_step(), 79);
  EXPECT_THAT(events(), Contains("death b"));
  EXPECT_THAT(events(), Contains("join b"));
  expect_proven_ledger();
}

// Two come at once and one goes.
TEST_F(ElasticProgramTest, WorkersJoinAndLeaveWhenTheClustersFileIsWrittenAnew) {
  const std::string worker = "[[worker]]\ncores = 0.5\nname = ";
  std::ofstream(folder_ / "cluster.toml") << worker << "'a'\n" << worker << "'b'\n";
  std::ofstream(folder_ / "next.toml") << worker << "'c'\n" << worker << "'d'\n" << worker << "'a'\n";
  const Outcome outcome = script(
      "--cluster cluster.toml -- " + kTrain,
      "after 10; echo 'workers = 7' >half; mv half cluster.toml; said 'is left out' '" + folder_.string() +
          ".captured.err'; mv next.toml cluster.toml;"
          "said '\"join\".*\"c\"' run.jsonl; said '\"join\".*\"d\"' run.jsonl; kill -TERM $(launcher)");
  ASSERT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_THAT(events(), testing::UnorderedElementsAre("death b", "join c", "join d")) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("the cluster's file has changed and is left out"));
  EXPECT_THAT(content(folder_ / "run.jsonl"), HasSubstr(R"("cluster":"cluster")"));
  expect_proven_ledger();
}

}  // namespace
}  // namespace isochron::worker
