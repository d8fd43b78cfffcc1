// Runs the real program, alone and with real ranks, and looks at what it writes, says and ends with.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "tests/shell_test.h"
#include "tests/small_disk.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "isochron/io/run_log_reader.h"

namespace isochron::worker {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// 34 steps an epoch, the last of 10 samples.
const std::string kSmall =
    "train --dataset synthetic --model mlp:hidden=16 --train-samples 1000 --test-samples 200 --global-batch 30 "
    "--learning-rate 0.02 --timeout 60 ";

class TrainProgramTest : public ShellTest {
 protected:
  // A hang must fail, not last.
  [[nodiscard]] Outcome limited(const std::string& words) const {
    return shell("OMP_NUM_THREADS=1 timeout 300 " + words);
  }
  [[nodiscard]] Outcome run(const std::string& words) const { return limited("'" ISOCHRON_PROGRAM "' " + words); }
  [[nodiscard]] Outcome run_ranks(int ranks, const std::string& words) const {
    return limited(ISOCHRON_MPIRUN " " + std::to_string(ranks) + " '" ISOCHRON_PROGRAM "' " + words);
  }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

  template <class Record>
  [[nodiscard]] std::vector<Record> records(const std::string& log) const {
    std::ifstream stream(folder_ / log);
    io::RunLogReader reader(stream, log);
    std::vector<Record> records;
    while (const auto line = reader.next()) {
      if (const auto* const record = std::get_if<Record>(&*line)) {
        records.push_back(*record);
      }
    }
    return records;
  }
  [[nodiscard]] std::vector<StepRecord> steps(const std::string& log) const { return records<StepRecord>(log); }
};

/// Steps 0, 1, 2 …, and every sample of every epoch in one of them.
void expect_whole_epochs(const std::vector<StepRecord>& steps) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    ASSERT_EQ(steps[i].step, static_cast<std::int64_t>(i));
    std::int64_t sum = 0;
    for (const WorkerStep& worker : steps[i].workers) {
      sum += worker.batch;
    }
    EXPECT_EQ(sum, i % 34 == 33 ? 10 : 30) << "step " << i;
  }
}

// The variable of Open MPI tells of workers on another host, of which there are none.
TEST_F(TrainProgramTest, WarnsOfOpenPortsBetweenHostsWhereNoInterfaceIsKnown) {
  const std::string two = ISOCHRON_MPIRUN " 2 env OMPI_COMM_WORLD_LOCAL_SIZE=1 ";
  const std::string train = "'" ISOCHRON_PROGRAM "' " + kSmall + "--epochs 1";
  const std::string warning = "warning: MPI listens on all interfaces";
  const Outcome open = limited(two + train);
  EXPECT_EQ(open.status, 0) << open.errors;
  EXPECT_THAT(open.errors, HasSubstr(warning));
  EXPECT_EQ(open.errors.find(warning), open.errors.rfind(warning)) << "once: " << open.errors;
  const Outcome told = limited(two + "ISOCHRON_INTERFACE=lo " + train);
  EXPECT_EQ(told.status, 0) << told.errors;
  EXPECT_THAT(told.errors, Not(HasSubstr(warning)));
}

// MPI's shared memory and folders are meant.
TEST_F(TrainProgramTest, LeavesNothingBehindAlone) {
  const Outcome outcome = shell(
      "mkdir temporary && export TMPDIR=$PWD/temporary OMPI_MCA_btl_sm_backing_directory=$PWD/temporary && "
      "OMP_NUM_THREADS=1 timeout 100 '" ISOCHRON_PROGRAM
      "' train --dataset synthetic --model mlp --train-samples 64 --test-samples 10 --global-batch 32 --epochs 1");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_TRUE(fs::is_empty(folder_ / "temporary"));
}

// It is killed in the moment in which MPI starts, and can remove nothing.
TEST_F(TrainProgramTest, WhatALoneWorkerLeavesThatIsKilledIsRemovedByTheNextLaunch) {
  write(
      "script",
      "mkdir temporary; export TMPDIR=$PWD/temporary OMP_NUM_THREADS=1\n"
      "until ls -d temporary/isochron-mpi-*; do\n"  // it may have got through
      "  '" ISOCHRON_PROGRAM "' " +
          kSmall +
          "--epochs 1 & victim=$!\n"
          "  while kill -0 $victim && ! ls -d temporary/isochron-mpi-*; do :; done\n"
          "  kill -9 $victim; wait $victim\n"
          "done 2>/dev/null\n"
          "'" ISOCHRON_PROGRAM "' launch --quiet -n 1 -- ls $TMPDIR >left\n");
  const Outcome outcome = limited("bash script");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("isochron-mpi-"));
  EXPECT_THAT(content(folder_ / "left"), testing::Not(HasSubstr("isochron-mpi-")));
  EXPECT_TRUE(fs::is_empty(folder_ / "temporary"));
}

TEST_F(TrainProgramTest, ServesItsLivePage) {
  write(
      "script",
      "'" ISOCHRON_PROGRAM "' " + kSmall +
          "--epochs 100000 --steps 1000000 --eval-every 0 --serve 0 --quiet 2>said & job=$!\n"
          "until url=$(grep -o 'http://[^ ]*' said); do sleep 0.05; done\n"
          "sleep 0.5\n"
          "for page in '' metrics healthz; do python3 -c \"import sys, urllib.request; "
          "sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())\" \"$url$page\" >\"page-$page\"; "
          "done\n"
          "kill $job; wait $job\n");
  const Outcome outcome = limited("bash script");
  EXPECT_EQ(outcome.status, 143) << outcome.errors << content(folder_ / "said");
  EXPECT_THAT(content(folder_ / "page-"), HasSubstr("<html"));
  EXPECT_THAT(content(folder_ / "page-metrics"), HasSubstr("isochron_"));
  EXPECT_THAT(content(folder_ / "page-healthz"), HasSubstr("ok"));
}

TEST_F(TrainProgramTest, TrainsOnThreeRanksAndReports) {
  const Outcome outcome = run_ranks(3, kSmall + "--epochs 2 --log run.jsonl --trace trace.json --json result.json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("policy    steps  samples/s"));
  EXPECT_THAT(outcome.errors, HasSubstr("step 34: test accuracy "));
  EXPECT_THAT(outcome.errors, HasSubstr("step 68: test accuracy "));

  const auto records = steps("run.jsonl");
  ASSERT_EQ(records.size(), 68U);
  expect_whole_epochs(records);
  EXPECT_EQ(records.front().workers.size(), 3U);
  EXPECT_LT(records.back().loss, 0.5 * records.front().loss);

  const json document = json::parse(content(folder_ / "result.json"));
  EXPECT_EQ(document["command"], "train");
  EXPECT_EQ(document["workers"], 3);
  const json& result = document["results"][0];
  EXPECT_EQ(result["policy"], "isochron");
  EXPECT_EQ(result["steps"], 68);
  EXPECT_EQ(result["evaluations"].size(), 2U);
  EXPECT_GT(result["test_accuracy"], 0.9);
  EXPECT_TRUE(json::accept(content(folder_ / "trace.json")));
}

TEST_F(TrainProgramTest, DealsDocumentsByCostAndProvesIt) {
  const std::string text =
      "train --model gpt2:layers=1,heads=2,width=16 --dataset synthetic-tokens --context 32 --train-samples 200 "
      "--test-samples 50 --global-batch 20 --log run.jsonl --lengths documents ";
  for (const std::string collate : {"packed", "padded"}) {
    const Outcome outcome = run_ranks(3, text + "--cost attention:width=16 --collate " + collate);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    const Outcome ledger = run("ledger run.jsonl");
    EXPECT_EQ(ledger.status, 0) << ledger.output << ledger.errors;
    const auto records = steps("run.jsonl");
    ASSERT_EQ(records.size(), 10U);
    double padding = 0.0;
    for (const StepRecord& record : records) {
      for (const WorkerStep& worker : record.workers) {
        EXPECT_GT(worker.work, static_cast<double>(worker.batch));
        padding += worker.padding;
      }
    }
    EXPECT_EQ(padding > 0.0, collate == "padded");
  }
}

TEST_F(TrainProgramTest, TrainsAsynchronouslyAndProvesIt) {
  const Outcome outcome = run_ranks(
      4,
      kSmall +
          "--sync ssp --staleness 2 --servers 1 --push-rate batch-linear --momentum 0 --epochs 2 --log run.jsonl "
          "--json out.json");  // with momentum what stale updates come to depends on the moment
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("staleness: mean "));
  EXPECT_THAT(outcome.errors, HasSubstr("step 34: test accuracy "));
  const Outcome ledger = run("ledger run.jsonl");
  EXPECT_EQ(ledger.status, 0) << ledger.output << ledger.errors;

  const json result = json::parse(content(folder_ / "out.json"))["results"][0];
  EXPECT_EQ(result["evaluations"].size(), 2U);
  EXPECT_GT(result["test_accuracy"], 0.9);
  EXPECT_EQ(result["pushes"]["sent"], result["pushes"]["applied"]);
  std::int64_t samples = 0;
  std::int64_t updates = 0;
  for (const UpdateRecord& record : records<UpdateRecord>("run.jsonl")) {
    ASSERT_EQ(record.step, updates++);
    samples += record.worker.batch;
    EXPECT_GE(record.staleness, 0);
  }
  EXPECT_EQ(samples, 2000);
  EXPECT_EQ(result["staleness"]["updates"], updates);
}

TEST_F(TrainProgramTest, SaysWhatIsNotPermittedOutOfStep) {
  const std::pair<const char*, const char*> cases[] = {
      {"--sync lockstep", "--sync is 'lockstep'; permitted: "},
      {"--sync ssp --staleness -1", "--staleness"},
      {"--staleness 2", "staleness is 2 with sync 'bsp'; permitted: with sync 'ssp'"},
      {"--sync asp --staleness 2", "staleness is 2 with sync 'asp'; permitted: with sync 'ssp'"},
      {"--servers 1", "servers is 1 with sync 'bsp'; permitted: with sync 'asp' or 'ssp'"},
      {"--sync asp --push-rate much", "--push-rate"},
      {"--sync asp --servers 1", "servers is 1 in a job of 1 ranks; permitted: fewer than there are"},
      {"--sync asp --momentum-correction --optimizer adam", "permitted: with optimizer 'sgd'"},
      {"--sync asp --compression bf16", "compression is 'bf16' with sync 'asp'; permitted: with sync 'bsp'"},
      {"--sync asp --precision bf16", "precision is 'bf16' with sync 'asp'; permitted: with sync 'bsp'"},
      {"--precision half", "--precision is 'half'; permitted: "},
  };
  for (const auto& [words, expected] : cases) {
    const Outcome outcome = run(kSmall + words);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_THAT(outcome.errors, HasSubstr(expected)) << words;
  }
}

TEST_F(TrainProgramTest, ALogThatCannotBeWrittenEndsAllWorkersIfItShall) {
  const SmallDisk disk(std::size_t{16} << 10U);  // for some 30 of 136 steps
  if (!disk.why_not().empty()) {
    GTEST_SKIP() << disk.why_not();
  }
  const std::string log = "--epochs 4 --eval-every 0 --checkpoints saved --log " + (disk.path() / "run.jsonl").string();
  const Outcome stopped = run_ranks(2, kSmall + log + " --log-errors stop");
  EXPECT_EQ(stopped.status, 1) << stopped.errors;
  EXPECT_THAT(stopped.errors, HasSubstr("No space left on device"));
  EXPECT_THAT(stopped.errors, HasSubstr("since --log-errors is 'stop'"));
  EXPECT_FALSE(std::filesystem::is_empty(folder_ / "saved")) << "all saved before they ended";
  EXPECT_FALSE(std::filesystem::exists(folder_ / "saved" / "step-000000136.ckpt"));
}

TEST_F(TrainProgramTest, ALogThatCannotBeWrittenIsAWarningThatComesOnce) {
  const SmallDisk disk(std::size_t{16} << 10U);  // for some 30 of 136 steps
  if (!disk.why_not().empty()) {
    GTEST_SKIP() << disk.why_not();
  }
  const Outcome outcome =
      run_ranks(2, kSmall + "--epochs 4 --eval-every 0 --log " + (disk.path() / "run.jsonl").string());
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  const std::string warning = "the run goes on, and the log when it can be written again";
  const std::size_t said = outcome.errors.find(warning);
  ASSERT_NE(said, std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.errors.find(warning, said + 1), std::string::npos) << outcome.errors;
  EXPECT_THAT(outcome.errors, ContainsRegex("[0-9]+ lines of the log are missing: .*No space left on device"));
}

TEST_F(TrainProgramTest, ReportsBadUsageOnceHoweverManyRanks) {
  const Outcome outcome = run_ranks(3, kSmall + "--policy best");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, IsEmpty());
  EXPECT_THAT(outcome.errors, StartsWith("isochron: policy is 'best'; permitted: uniform"));
  EXPECT_EQ(std::ranges::count(outcome.errors, '\n'), 2) << outcome.errors;
}

// MPI runs by then, and its end waits for all ranks.
TEST_F(TrainProgramTest, EndsWhenTheWorkersTogetherCannotTakeTheBatch) {
  const Outcome outcome = run_ranks(3, kSmall + "--max-batch 1");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, StartsWith("isochron: the workers can take at most 3 samples together"));
  EXPECT_EQ(std::ranges::count(outcome.errors, '\n'), 2) << outcome.errors;
}

TEST_F(TrainProgramTest, ReportsWhatOnlyRankZeroCanSeeOnce) {
  const Outcome outcome = run_ranks(3, kSmall + "--log none/run.jsonl");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, StartsWith("isochron: --log is 'none/run.jsonl'; permitted: a file that can be written"));
  EXPECT_EQ(std::ranges::count(outcome.errors, '\n'), 2) << outcome.errors;
}

// Rank 1 gets the signal once the log shows that training goes on; then another number of ranks goes on with it.
TEST_F(TrainProgramTest, StopsOnSigtermAndGoesOnWithOtherRanks) {
  write(
      "worker.sh",
      "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then\n"
      "  (until [ \"$(cat run.jsonl | wc -l)\" -ge 10 ]; do sleep 0.02; done; kill -TERM $$) 2>/dev/null &\n"
      "fi\n"
      "exec '" ISOCHRON_PROGRAM "' " +
          kSmall + "--epochs 100000 --log run.jsonl --checkpoints saved\n");
  const Outcome stopped = limited(ISOCHRON_MPIRUN " 3 sh worker.sh");
  EXPECT_EQ(stopped.status, 143) << stopped.errors;
  EXPECT_THAT(stopped.errors, HasSubstr("stopped by signal 15 after "));
  const std::size_t done = steps("run.jsonl").size();
  ASSERT_GE(done, 9U);

  const std::string total = std::to_string(done + 40);
  const Outcome resumed =
      run_ranks(2, kSmall + "--epochs 100000 --steps " + total + " --log run.jsonl --checkpoints saved --resume auto");
  ASSERT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_THAT(resumed.errors, HasSubstr("resumed at step " + std::to_string(done) + "\n"));
  const auto records = steps("run.jsonl");
  ASSERT_EQ(records.size(), done + 40);
  expect_whole_epochs(records);
  EXPECT_EQ(records.back().workers.size(), 2U);
}

TEST_F(TrainProgramTest, StopsOnSigint) {
  write(
      "worker.sh",
      "(until [ \"$(cat run.jsonl | wc -l)\" -ge 3 ]; do sleep 0.02; done; kill -INT $$) 2>/dev/null &\n"
      "exec '" ISOCHRON_PROGRAM "' " +
          kSmall + "--epochs 100000 --log run.jsonl --quiet\n");
  const Outcome outcome = limited("bash worker.sh");
  EXPECT_EQ(outcome.status, 130) << outcome.errors;
  EXPECT_THAT(outcome.output + outcome.errors, IsEmpty());
}

TEST_F(TrainProgramTest, TakesOptionsFromAFileUnlessTheCommandLineHasThem) {
  write("run.toml", "steps = 3\npolicy = \"uniform\"\neval-every = 0\nno-augment = true\n");
  const Outcome outcome = run(kSmall + "--config run.toml --steps 2 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const json result = json::parse(outcome.output)["results"][0];
  EXPECT_EQ(result["steps"], 2);
  EXPECT_EQ(result["policy"], "uniform");
  EXPECT_TRUE(result["test_accuracy"].is_null());

  write("run.toml", "steps = 3\nlearning_rate = 0.1\n");
  const Outcome refused = run(kSmall + "--config run.toml");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(
      refused.errors, StartsWith("isochron: run.toml:2: unknown key 'learning_rate'; permitted: model, dataset,"));
}

TEST_F(TrainProgramTest, EndsWhenTheTargetIsReached) {
  const Outcome outcome = run(kSmall + "--epochs 100000 --target-accuracy 0.5 --checkpoints saved --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const json result = json::parse(outcome.output)["results"][0];
  EXPECT_GE(result["test_accuracy"], 0.5);
  EXPECT_EQ(result["seconds_to_accuracy"], result["evaluations"].back()["seconds"]);
  EXPECT_FALSE(fs::is_empty(folder_ / "saved"));
}

TEST_F(TrainProgramTest, SaysWhatIsNotPermitted) {
  const auto expect_refusal = [this](const std::string& words, const std::string& message) {
    SCOPED_TRACE(words);
    expect_refused(run("train --dataset synthetic " + words), message);
  };
  expect_refusal("--global-batch 0", "--global-batch is '0'; permitted: a whole number from 1 to 1000000000");
  expect_refusal(
      "--train-samples 256 --global-batch 257",
      "--global-batch is 257; permitted: up to 256, the samples that there are");
  expect_refusal("--frobnicate", "unknown option '--frobnicate'");
  // Names of before, which are answered by those of today.
  expect_refusal("--numbers maybe", "--on-nonfinite is 'maybe'; permitted: stop, skip, rollback, ignore");
  expect_refusal("--rate maybe", "--lr-rule is 'maybe'; permitted: none, linear, ");
  expect_refusal("--warmup x", "--warmup-steps is 'x'; permitted: a whole number from 0 ");
  expect_refusal("--resume auto", "resume is auto; permitted: with checkpoints, their folder");
  expect_refusal("--max-batch 8", "the workers can take at most 8 samples together (sum of max_batch), but");
  expect_refusal("--target-accuracy 2", "--target-accuracy is 2; permitted: 0 to 1");
  write("none.pt", "no program of TorchScript");
  expect_refusal(
      "--model script:none.pt", "model is 'script:none.pt'; permitted: a TorchScript file, as torch.jit.save");
  expect_refusal(
      "--model script:nowhere", "model is 'script:nowhere'; permitted: a TorchScript file, as torch.jit.save");
  expect_refusal("--log x --json x", "'x' is given for two outputs; permitted: a file of its own for each");
}

// On an emulated cluster: equal batches, isochron and the oracle see the same samples.
TEST_F(TrainProgramTest, ComparesPoliciesOnTheSameSamples) {
  write("pair.toml", "[[worker]]\ncores = 0.5\n[[worker]]\ncores = 0.1\n");
  const std::string words =
      "compare" + kSmall.substr(5) +
      "--cluster pair.toml --policy uniform,isochron+linear,oracle --steps 12 --turn 4 --rounds 2 "
      "--solo-seconds 0.2 --logs logs --json result.json";
  const Outcome outcome = run(words);
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("of oracle"));
  const json document = json::parse(content(folder_ / "result.json"));
  ASSERT_EQ(document["results"].size(), 3U);
  EXPECT_EQ(document["results"][1]["policy"], "isochron+linear");
  EXPECT_EQ(document["results"][1]["rounds"].size(), 2U);
  EXPECT_GT(document["results"][0]["share_of_solo"], 0.0);
  const auto uniform = steps("logs/uniform.1.jsonl");
  const auto balanced = steps("logs/isochron+linear.2.jsonl");
  ASSERT_EQ(uniform.size(), 12U);
  ASSERT_EQ(balanced.size(), 12U);
  expect_whole_epochs(balanced);
  EXPECT_NEAR(uniform.front().loss, balanced.front().loss, 1e-5);
  EXPECT_NEAR(uniform.back().loss, balanced.back().loss, 1e-3);
  // The turns of the others do not count.
  for (std::size_t i = 1; i < uniform.size(); ++i) {
    EXPECT_NEAR(uniform[i].start_seconds, uniform[i - 1].start_seconds + uniform[i - 1].seconds, 1e-6);
  }
}

TEST_F(TrainProgramTest, RefusesAComparisonBeforeItStarts) {
  const auto refused = [&](const std::string& words) { return run("compare --dataset synthetic " + words).errors; };
  EXPECT_THAT(refused("--policy swift"), HasSubstr("--policy: policy is 'swift'; permitted: "));
  EXPECT_THAT(refused("--steps 0"), HasSubstr("--steps is 0; permitted: 1 or more"));
  EXPECT_THAT(refused("--policy oracle --solo-seconds 0"), HasSubstr("--solo-seconds is 0; permitted"));
  EXPECT_THAT(refused("--resume auto"), HasSubstr("--resume is given; permitted: with 'isochron train'"));
  EXPECT_THAT(refused("--cluster spot"), HasSubstr("permitted: speeds that change at steps"));
  EXPECT_THAT(refused("--json none/result.json"), HasSubstr("--json is 'none/result.json'"));
}

}  // namespace
}  // namespace isochron::worker
