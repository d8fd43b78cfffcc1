// Runs the real program and looks at its output, its error line and its exit status.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/shell_test.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "isochron/io/cluster_file.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class ProgramTest : public ShellTest {
 protected:
  /// `isochron ARGUMENTS`.
  [[nodiscard]] Outcome run(const std::string& arguments) const { return shell("'" ISOCHRON_PROGRAM "' " + arguments); }

  /// And no file is left.
  void expect_refusal(const std::string& arguments, const std::string& message) const {
    SCOPED_TRACE(arguments);
    const auto before = files();
    expect_refused(run(arguments), message);
    EXPECT_EQ(files(), before);
  }

  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
};

TEST_F(ProgramTest, PrintsHelpAndVersion) {
  const Outcome help = run("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.output, AllOf(HasSubstr("simulate"), HasSubstr("policies"), HasSubstr("clusters")));
  const Outcome simulate = run("simulate --help");
  EXPECT_EQ(simulate.status, 0);
  EXPECT_THAT(simulate.output, AllOf(HasSubstr("--global-batch N"), HasSubstr("[128]"), HasSubstr("Examples:")));
  EXPECT_EQ(run("--version").output, "isochron " ISOCHRON_VERSION "\n");
}

TEST_F(ProgramTest, RefusesBadUsage) {
  const std::string commands =
      "; permitted: train, compare, profile, launch, simulate, plan, report, serve, top, policies, clusters, ledger, "
      "doctor";
  expect_refusal("", "no command" + commands);
  expect_refusal("frobnicate", "unknown command 'frobnicate'" + commands);
  expect_refusal("frobnicate --help", "unknown command 'frobnicate'" + commands);
  expect_refusal("--frobnicate", "unknown option '--frobnicate'");
  expect_refusal("simulate --frobnicate", "unknown option '--frobnicate'\nTry 'isochron simulate --help'");
  expect_refusal("simulat --steps 3", "unknown command 'simulat'" + commands + "; did you mean simulate?");
  expect_refusal("simulate --polcy=uniform", "unknown option '--polcy=uniform'; did you mean --policy?\n");
  expect_refusal("simulate --setps 3", "unknown option '--setps'; did you mean --steps?\n");
  expect_refusal("simulate hl8", "unexpected argument 'hl8'");
  expect_refusal("simulate --steps", "--steps");
  expect_refusal("simulate --steps 5 --steps 6", "--steps");
}

TEST_F(ProgramTest, RefusesBadValuesByName) {
  expect_refusal("simulate --steps many", "--steps is 'many'; permitted: a whole number from 1 to ");
  expect_refusal("simulate --steps 0", "--steps is '0'; permitted: ");
  expect_refusal("simulate --steps -5", "--steps is '-5'; permitted: ");
  expect_refusal("simulate --steps 99999999999999999999", "--steps is '99999999999999999999'; permitted: ");
  expect_refusal("simulate --global-batch 1.5", "--global-batch is '1.5'; permitted: ");
  expect_refusal("simulate --noise nan", "--noise is 'nan'; permitted: 0 to 3");
  expect_refusal("simulate --noise 40", "--noise is '40'; permitted: 0 to 3");
  expect_refusal("simulate --sync maybe", "--sync is 'maybe'; permitted: bsp, local, asp, ssp, all");
  expect_refusal("simulate --lr-rule cosine", "--lr-rule is 'cosine'; permitted: none, linear, ");
  expect_refusal("simulate --lengths lognormal:sigma=wide", "--lengths: lengths lognormal: sigma is wide; permitted: ");
  expect_refusal(
      "simulate --lengths nowhere.txt", "--lengths: lengths is 'nowhere.txt'; permitted: lognormal, or a file");
  expect_refusal(
      "simulate --lengths lognormal --cost cubic", "--cost is 'cubic'; permitted: linear, attention, attention:width=");
  expect_refusal("simulate --lengths lognormal --collate stacked", "--collate is 'stacked'; permitted: packed, padded");
  expect_refusal("simulate --deal count", "--deal is 'count'; permitted: with --lengths");
  expect_refusal("simulate --lengths lognormal --sync asp", "sync is asp; permitted: bsp, since samples have lengths");
  expect_refusal("simulate --link-rate fast", "--link-rate is 'fast'; permitted: ");
  expect_refusal("simulate --link-delay 2", "--link-delay is '2'; permitted: ");
  expect_refusal("simulate --gradient-bytes x", "--gradient-bytes is 'x'; permitted: ");
  expect_refusal("simulate --staleness 3", "--staleness is given with --sync bsp; permitted: with --sync ssp or all");
  expect_refusal(
      "simulate --sync all --lengths lognormal", "--sync is 'all'; permitted: bsp, since samples have lengths");
}

TEST_F(ProgramTest, RefusesUnknownPoliciesAndOptions) {
  expect_refusal("simulate --policy best", "--policy: policy is 'best'; permitted: uniform, ");
  expect_refusal("simulate --policy isochron,omnilearn:ewma=7", "--policy: policy omnilearn: ewma is 7; permitted: ");
  expect_refusal("simulate --policy ''", "--policy: ");
}

TEST_F(ProgramTest, RefusesClustersThatCannotBe) {
  expect_refusal("simulate --cluster moon", "--cluster: cluster is \"moon\"; permitted: hl1, ");
  expect_refusal("simulate --cluster no.toml", "--cluster is 'no.toml'; permitted: a file that can be read (");
  expect_refusal("simulate --cluster ./", "--cluster is './'; permitted: a file that can be read (");
  write("empty.toml", "");
  expect_refusal("simulate --cluster empty.toml", "empty.toml:1: ");
  write("bad.toml", "[[worker]]\nname = \"a\"\ncores = = 1\n");
  expect_refusal("simulate --cluster bad.toml", "bad.toml:3: ");
  write("typo.toml", "[[worker]]\ncors = 1\n");
  expect_refusal("simulate --cluster typo.toml", "typo.toml:2: unknown key 'cors'; permitted: ");
  write("bytes.toml", "name = \"\xff\"\n");
  expect_refusal("simulate --cluster bytes.toml", "bytes.toml:1: ");
}

TEST_F(ProgramTest, RefusesABatchThatTheBoundsCannotHold) {
  // hl8 has 4 workers with at least 1 sample each.
  const Outcome outcome = run("simulate --cluster hl8 --policy uniform --global-batch 3");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("3"), HasSubstr("4")));
  write("small.toml", "[[worker]]\nmax_batch = 10\n[[worker]]\nmax_batch = 10\n");
  expect_refusal("simulate --cluster small.toml --global-batch 100 --json out.json --log run.jsonl", "");
}

TEST_F(ProgramTest, RefusesOutputsThatCannotBeWritten) {
  expect_refusal("simulate --json none/out.json", "--json is 'none/out.json'; permitted: a file that can be written (");
  expect_refusal("simulate --json .", "--json is '.'; permitted: ");
  expect_refusal("simulate --policy uniform --log none/run.jsonl", "--log is 'none/run.jsonl'; permitted: ");
  expect_refusal(
      "simulate --policy uniform --json a.json --trace none/t.json", "--trace is 'none/t.json'; permitted: ");
  expect_refusal("simulate --json same --log same", "'same' is given for two outputs");
}

TEST_F(ProgramTest, FailsWithOneWhenStandardOutputIsFull) {
  const Outcome outcome = run("policies --json - >/dev/full; exit $?");
  EXPECT_EQ(outcome.status, fs::exists("/dev/full") ? 1 : 0);
}

TEST_F(ProgramTest, PrintsATableAndWhatWasGained) {
  const Outcome outcome = run("simulate --cluster hl8 --policy uniform,isochron --steps 50");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.errors, IsEmpty());
  EXPECT_THAT(outcome.output, StartsWith("hl8: 4 workers, global batch 128, 50 steps, bsp, seed 0\n"));
  EXPECT_THAT(outcome.output, HasSubstr("\nuniform "));
  EXPECT_THAT(outcome.output, HasSubstr("x the samples per second of uniform, "));
  EXPECT_THAT(outcome.output, EndsWith("the oracle.\n"));
}

TEST_F(ProgramTest, WritesJsonWithTheCommonKeys) {
  const Outcome outcome = run("simulate --cluster hl8 --policy uniform,oracle --global-batch 96 --steps 50 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const json document = json::parse(outcome.output);
  EXPECT_EQ(document.at("command"), "simulate");
  EXPECT_EQ(document.at("version"), ISOCHRON_VERSION);
  EXPECT_EQ(document.at("global_batch"), 96);
  const json& uniform = document.at("results").at(0);
  EXPECT_EQ(uniform.at("policy"), "uniform");
  EXPECT_EQ(uniform.at("batch_sizes"), json({24, 24, 24, 24}));
  for (const char* const key : {"p50", "p90", "p99", "mean"}) {
    EXPECT_GT(uniform.at("step_seconds").at(key), 0.0);
  }
  // hl8 has 6, 6, 4 and 32 of 48 cores; 24 samples take the slowest 24/4 = 6 units of time, against 96/48 = 2 for the
  // best split, which batches of 12, 12, 8 and 64 reach exactly.
  const json& oracle = document.at("results").at(1);
  EXPECT_EQ(oracle.at("batch_sizes"), json({12, 12, 8, 64}));
  EXPECT_NEAR(uniform.at("time_over_oracle").get<double>(), 3.0, 1e-9);
  EXPECT_NEAR(uniform.at("share_of_peak").get<double>(), 1.0 / 3.0, 1e-9);
  EXPECT_NEAR(oracle.at("share_of_peak").get<double>(), 1.0, 1e-9);
  EXPECT_NEAR(oracle.at("balance").get<double>(), 1.0, 1e-9);
  EXPECT_EQ(uniform.at("adjustments"), 0);
}

TEST_F(ProgramTest, GivesTheSameBytesForTheSameSeed) {
  const std::string arguments =
      "simulate --cluster dynamic --policy uniform,isochron --steps 200 --noise 0.05 --json -";
  const std::string first = run(arguments + " --seed 7").output;
  EXPECT_EQ(run(arguments + " --seed 7").output, first);
  EXPECT_NE(run(arguments + " --seed 8").output, first);
}

TEST_F(ProgramTest, WritesOneLogAndTracePerPolicy) {
  const Outcome outcome =
      run("simulate --policy uniform,omnilearn:ewma=0.5 --steps 20 --json out.json --log run.jsonl --trace trace.json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(files(), 5);
  EXPECT_EQ(json::parse(content(folder_ / "out.json")).at("results").size(), 2U);
  EXPECT_TRUE(json::parse(content(folder_ / "trace.uniform.json")).contains("traceEvents"));
  std::ifstream stream(folder_ / "run.omnilearn-ewma=0.5.jsonl");
  io::RunLogReader reader(stream, "run");
  const RunHeader header = std::get<RunHeader>(reader.next().value());
  EXPECT_EQ(header.policy, "omnilearn:ewma=0.5");
  EXPECT_EQ(header.workers.size(), 4U);
  std::int64_t steps = 0;
  while (const auto line = reader.next()) {
    EXPECT_EQ(std::get<StepRecord>(*line).step, steps);
    ++steps;
  }
  EXPECT_EQ(steps, 20);
}

TEST_F(ProgramTest, TakesTheDeviceOfLbBspFromAnOption) {
  const std::string rest = " --cluster t4-p4 --steps 20 --json -";
  const Outcome by_option = run("simulate --policy lb-bsp --device gpu" + rest);
  EXPECT_EQ(by_option.status, 0) << by_option.errors;
  EXPECT_EQ(by_option.output, run("simulate --policy lb-bsp:device=gpu" + rest).output);
  EXPECT_NE(by_option.output, run("simulate --policy lb-bsp --device cpu" + rest).output);
}

TEST_F(ProgramTest, SimulatesEverySyncAndSaysWhichToTake) {
  const std::string cluster = "simulate --cluster hl8 --policy uniform,isochron --steps 2000 --noise 0.05 --sync all";
  const Outcome far = run(cluster + " --gradient-bytes 1mbyte --link-rate 100mbit");
  EXPECT_EQ(far.status, 0);
  EXPECT_THAT(
      far.output, ContainsRegex("isochron local does [3-9]\\.[0-9]*x the samples per second of isochron bsp\\."));
  EXPECT_THAT(far.output, AllOf(HasSubstr("uniform asp"), HasSubstr("isochron ssp")));
  EXPECT_THAT(run(cluster).output, HasSubstr("Take isochron bsp: nothing here is more than 5 % faster"));
}

TEST_F(ProgramTest, RunsAsynchronously) {
  const Outcome outcome = run("simulate --policy uniform --steps 50 --sync ssp --staleness 2 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_LE(json::parse(outcome.output).at("results").at(0).at("max_lead"), 2);
}

TEST_F(ProgramTest, OptionsBeatTheCluster) {
  // 1e6 bytes round a ring of 4 over 8 mbit/s take 2 x 3/4 x 1e6 / 1e6 = 1.5 s, none of it hidden.
  const std::string arguments = "simulate --policy oracle --steps 5 --gradient-bytes 1mbyte --no-overlap --json -";
  const auto mean = [](const Outcome& outcome) {
    return json::parse(outcome.output).at("results").at(0).at("step_seconds").at("mean").get<double>();
  };
  EXPECT_NEAR(mean(run(arguments + " --link-rate 8mbit")) - mean(run(arguments)), 1.5, 1e-6);
}

TEST_F(ProgramTest, RefusesALaunchBeforeAnythingStarts) {
  expect_refusal("launch", "no command for the workers; permitted: ");
  expect_refusal("launch -- true", "the number of workers is missing; permitted: -n N, or --cluster");
  expect_refusal("launch -n 2 -- frobnicate", "the command is 'frobnicate'; permitted: a program, or one of train,");
  expect_refusal(
      "launch -n 2 train.py", "the command is 'train.py'; for a script: python -m isochron.launch -n N train.py;");
  expect_refusal("launch -n 0 -- true", "-n,--workers is '0'; permitted: ");
  expect_refusal("launch -n 3 --cluster hl8 -- true", "workers is 3; permitted: 4, as many as cluster \"hl8\" has");
  expect_refusal("launch --cluster moon -- true", "--cluster: cluster is \"moon\"; permitted: ");
  expect_refusal(
      "launch --cluster dynamic -- true", "--cluster is 'dynamic', which changes during the run; permitted: ");
  expect_refusal("launch -n 1 --throttle magic -- true", "--throttle is 'magic'; permitted: auto, cgroup, duty-cycle");
  expect_refusal("launch -n 1 --period-ms 0 -- true", "--period-ms is '0'; permitted: ");
  expect_refusal("doctor --job none", "job is 'none'; permitted: ");
  expect_refusal("launch -n 1 --mpirun ./none -- true", "mpirun is './none'; permitted: ");
  write("tiny.toml", "[[worker]]\ncores = 0.0005\n");
  expect_refusal("launch --cluster tiny.toml -- true", "worker \"worker-0\": cores is 5e-04; permitted: 0.001 or more");
}

TEST_F(ProgramTest, ExaminesTheMachine) {
  fs::create_directories(folder_ / "here" / "mnist");
  const auto examine = [this](const std::string& options) {
    const Outcome outcome = run("doctor --json - " + options);
    std::map<std::string, json> findings;
    bool failed = false;
    const json document = json::parse(outcome.output);
    for (const json& finding : document.at("results")) {
      findings[finding.at("check")] = finding;
      failed = failed || finding.at("health") == "fail";
      EXPECT_EQ(finding.at("health") == "ok", finding.at("remedy") == "") << finding;
    }
    EXPECT_EQ(outcome.status, failed ? 1 : 0);
    return findings;
  };
  auto findings = examine("--data here");
  EXPECT_EQ(findings["data"].at("text"), "here: mnist");
  EXPECT_EQ(findings["ports"].at("health"), "ok");
  EXPECT_EQ(findings["temporary folder"].at("health"), "ok");

  setenv("TMPDIR", "/proc", 1);  // nobody may write there
  findings = examine("--data nowhere");
  unsetenv("TMPDIR");
  EXPECT_EQ(findings["data"].at("health"), "warn");
  EXPECT_EQ(findings["temporary folder"].at("health"), "fail");
}

TEST_F(ProgramTest, ListsPolicies) {
  const Outcome text = run("policies");
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.output, AllOf(HasSubstr("\nomnilearn\n"), HasSubstr("    ewma=0.2  (")));
  const json document = json::parse(run("policies --json -").output);
  EXPECT_EQ(document.at("results").at(0).at("policy"), "uniform");
}

TEST_F(ProgramTest, ListsClustersAndWritesThemAsFiles) {
  EXPECT_THAT(run("clusters").output, HasSubstr("\nhl8 "));
  const json document = json::parse(run("clusters --json -").output);
  ASSERT_GE(document.at("results").size(), 10U);
  for (const json& cluster : document.at("results")) {
    const std::string name = cluster.at("cluster");
    const Outcome file = run("clusters " + name);
    ASSERT_EQ(file.status, 0) << file.errors;
    EXPECT_EQ(io::parse_cluster(file.output, "x.toml").name, name);
  }
  expect_refusal("clusters moon", "cluster is \"moon\"; permitted: ");
}

TEST_F(ProgramTest, SimulatesAClusterFileLikeTheBuiltInOne) {
  write("copy.toml", run("clusters dynamic --steps 80").output);
  const std::string arguments = " --policy uniform --steps 80 --noise 0.05 --json -";
  EXPECT_EQ(
      run("simulate --cluster copy.toml" + arguments).output, run("simulate --cluster dynamic" + arguments).output);
}

TEST_F(ProgramTest, RunsEveryExampleCluster) {
  for (const auto& entry : fs::directory_iterator(ISOCHRON_SOURCE_DIR "/examples/clusters")) {
    const Outcome outcome =
        run("simulate --steps 200 --policy uniform,isochron --cluster '" + entry.path().string() + "'");
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
  }
}

}  // namespace
}  // namespace isochron::cli
