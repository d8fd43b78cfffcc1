// Runs `isochron plan` on files and looks at what it says, writes and ends with.
#include <fstream>
#include <string>

#include "tests/shell_test.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "isochron/io/profile_file.h"

namespace isochron::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class PlanProgramTest : public ShellTest {
 protected:
  void SetUp() override {
    ShellTest::SetUp();
    profile_.model = "cnn";
    profile_.dataset = "mnist";
    profile_.dataset_size = 36'000;
    profile_.device = "cpu";
    profile_.machine = "here";
    for (std::int64_t batch = 1; batch <= 256; batch *= 2) {  // 20 ms and 1 ms a sample
      const double seconds = 0.02 + 0.001 * static_cast<double>(batch);
      profile_.points.push_back({.batch = batch, .p50_seconds = seconds, .p90_seconds = seconds, .bytes = 1e8});
    }
    write("cnn.json", io::to_json(profile_, "1"));
    write(
        "lab.toml",
        "[[machine]]\nname = \"fast\"\nprice_per_hour = 3.6\n"
        "[[machine]]\nname = \"slow\"\nspeed = 0.25\nprice_per_hour = 3.6\ncount = 2\n");
  }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  [[nodiscard]] Outcome plan(const std::string& words) const { return shell("'" ISOCHRON_PROGRAM "' plan " + words); }

  plan::Profile profile_;
};

TEST_F(PlanProgramTest, TakesTheWorkersOfARunLog) {
  const std::string simulate = "'" ISOCHRON_PROGRAM "' simulate --cluster hl8 --policy isochron --global-batch 256";
  ASSERT_EQ(shell(simulate + " --steps 60 --log run.jsonl").status, 0);
  const Outcome outcome = plan("--run run.jsonl --global-batch 256");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, StartsWith("run: 4 machines"));
  // Cores 6, 6, 4, 32 of a linear cluster: equal shares take 64 / 4, the best split 256 / 48.
  EXPECT_THAT(outcome.output, testing::ContainsRegex("samples per second, (2.9|3.0)[0-9]x those of equal shares"));
  const Outcome both = plan("--run run.jsonl --cluster hl8");
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.errors, HasSubstr("permitted: --run alone"));
  ASSERT_EQ(shell(simulate + " --steps 3 --log short.jsonl").status, 0);
  EXPECT_THAT(plan("--run short.jsonl").errors, HasSubstr("permitted: a run log with 8 steps or more"));
  EXPECT_THAT(plan("--run none.jsonl").errors, HasSubstr("cannot read 'none.jsonl': No such file or directory"));
}

TEST_F(PlanProgramTest, KnowsDistributionsOfLengths) {
  const std::string task = "--machines lab.toml --model-profile cnn.json --global-batch 240 ";
  const Outcome outcome = plan(task + "--lengths lognormal:sigma=1 --collate padded --json r.json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, testing::ContainsRegex("Dealt by cost: [1-9].[0-9]+x by count, [1-9].[0-9]+x equal"));
  const json lengths = json::parse(std::ifstream(folder_ / "r.json"))["lengths"];
  EXPECT_GT(lengths["by_cost"]["samples_per_second"], lengths["by_count"]["samples_per_second"]);
  EXPECT_LT(lengths["by_cost"]["padding"], lengths["by_count"]["padding"]);
  write("lengths.txt", "10\n20\n400\n");
  EXPECT_EQ(plan(task + "--lengths lengths.txt --cost attention:width=64").status, 0);
  const Outcome refused = plan(task + "--lengths normal");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("lengths is 'normal'; permitted: lognormal, or a file of them"));
  EXPECT_THAT(plan(task + "--cost attention").errors, HasSubstr("--cost is 'attention'; permitted: with --lengths"));
}

TEST_F(PlanProgramTest, PredictsSpeedTimeAndCost) {
  // With C = T - 20 ms on the fast one and T / 4 - 20 ms on the slow ones, in ms a sample: 240 = 1.5 T - 60, so T is
  // 200 ms: 180, 30 and 30 samples.
  const Outcome outcome =
      plan("--machines lab.toml --model-profile cnn.json --global-batch 240 --epochs 2 --json r.json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, StartsWith("lab: 3 machines, cnn on mnist, global batch 240\n"));
  EXPECT_THAT(outcome.output, HasSubstr("1200.0 samples per second"));
  EXPECT_THAT(outcome.output, HasSubstr("2 epochs of 36000 samples: 60 s, 300 steps, cost 0.180."));
  EXPECT_THAT(outcome.output, HasSubstr("One slow less is slower and cheaper"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("One fast less")));
  const json document = json::parse(content(folder_ / "r.json"));
  EXPECT_EQ(document["command"], "plan");
  EXPECT_EQ(document["workers"], 3);
  const json& result = document["results"][0];
  EXPECT_EQ(result["policy"], "isochron");
  EXPECT_EQ(result["batch_sizes"], (json{180, 30, 30}));
  EXPECT_NEAR(result["samples_per_second"], 1200.0, 1.0);
  EXPECT_NEAR(result["total_seconds"], 60.0, 0.1);
  EXPECT_NEAR(result["cost"], 0.18, 0.001);
  // 80 each: 4 x 100 ms on a slow one.
  EXPECT_NEAR(document["results"][1]["samples_per_second"], 600.0, 1.0);
  // Without a slow one: 240 = 1.25 T - 40, T = 224 ms. With a second fast one: 240 = 2.5 T - 80, T = 128 ms.
  EXPECT_NEAR(document["machines"][1]["without_one"]["samples_per_second"], 240 / 0.224, 1.0);
  EXPECT_NEAR(document["machines"][0]["one_more"]["samples_per_second"], 240 / 0.128, 1.0);
}

TEST_F(PlanProgramTest, SaysHowToKeepInStepOverTheNetwork) {
  profile_.parameter_bytes = 12.5e6;
  write("cnn.json", io::to_json(profile_, "1"));
  const std::string words = "--machines far.toml --model-profile cnn.json --global-batch 240 --json r.json";
  const auto over = [&](const std::string& rate) {
    write("far.toml", "[[machine]]\nname = \"far\"\ncount = 2\nnetwork = { rate = \"" + rate + "\" }\n");
    return plan(words);
  };
  // 140 ms to compute; 1 s to exchange at 100 Mbit/s, 10 ms at 10 Gbit/s.
  const Outcome slow = over("100mbit");
  ASSERT_EQ(slow.status, 0) << slow.errors;
  EXPECT_THAT(slow.output, HasSubstr("Take --sync local: of those within 10 % of the fastest"));
  const json modes = json::parse(content(folder_ / "r.json"))["modes"];
  ASSERT_EQ(modes.size(), 4U);
  EXPECT_NEAR(modes[0]["samples_per_second"], 240 / 1.14, 1.0);
  EXPECT_NEAR(modes[2]["samples_per_second"], 240 / 0.39, 1.0);
  EXPECT_EQ(modes[3]["round_steps"], 136);  // 1 s x 0.95 / (0.05 x 140 ms)
  EXPECT_EQ(modes[3]["advised"], true);
  const Outcome fast = over("10gbit");
  EXPECT_THAT(fast.output, HasSubstr("Take --sync bsp"));
  EXPECT_THAT(over("100gbit").output, Not(HasSubstr("over this network")));
}

TEST_F(PlanProgramTest, SearchesTheGlobalBatch) {
  const Outcome outcome = plan("--machines lab.toml --model-profile cnn.json --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const json document = json::parse(outcome.output);
  // From 4, the first with a sample for each of 3, to 256: 512 would give the fast one more than the 256 measured.
  EXPECT_EQ(document["search"].size(), 7U);
  EXPECT_EQ(document["search"].back()["global_batch"], 256);
  EXPECT_EQ(document["results"][0]["global_batch"], 256);
  EXPECT_THAT(
      plan("--machines lab.toml --model-profile cnn.json").output, HasSubstr("Every doubling halves the steps"));
}

TEST_F(PlanProgramTest, TakesAClusterAsRelativeSpeeds) {
  write("pair.toml", "[[worker]]\ncores = 1.0\n[[worker]]\ncores = 0.25\n");
  const Outcome outcome = plan("--cluster pair.toml --model-profile cnn.json --global-batch 240 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_NEAR(json::parse(outcome.output)["results"][0]["samples_per_second"], 240 / 0.224, 1.0);
  EXPECT_EQ(plan("--cluster hl4 --model-profile cnn.json").status, 0);
}

TEST_F(PlanProgramTest, SaysWhereItGoesBeyondWhatWasMeasured) {
  const std::string words = "--machines lab.toml --model-profile cnn.json --global-batch ";
  EXPECT_THAT(plan(words + "600").output, HasSubstr("Beyond what was measured: fast would take "));
  EXPECT_THAT(plan(words + "240").output, Not(HasSubstr("Beyond")));
}

TEST_F(PlanProgramTest, DoubtsAProfileOfABusyMachine) {
  const std::string words = "--machines lab.toml --model-profile cnn.json --global-batch 240 ";
  EXPECT_THAT(plan(words + "--noise 0.5").output, HasSubstr("Uncertain: the times of fast vary widely."));
  EXPECT_THAT(plan(words + "--noise 0.3").output, Not(HasSubstr("Uncertain")));
}

TEST_F(PlanProgramTest, SaysWhatIsNotPermitted) {
  const auto expect_refusal = [this](const std::string& words, const std::string& message) {
    SCOPED_TRACE(words);
    expect_refused(plan(words), message);
  };
  const std::string both = "--machines lab.toml --model-profile cnn.json ";
  expect_refusal("--machines lab.toml", "--model-profile is not given; permitted: ");
  expect_refusal("--model-profile cnn.json", "neither of --machines and --cluster is given; permitted: one of them");
  expect_refusal(both + "--cluster hl4", "each of --machines and --cluster is given; permitted: one of them");
  expect_refusal(
      "--machines no.toml --model-profile cnn.json", "--machines is 'no.toml'; permitted: a file that can be");
  expect_refusal("--machines lab.toml --model-profile no.json", "--model-profile is 'no.json'; permitted: a file that");
  expect_refusal("--machines lab.toml --model-profile lab.toml", "lab.toml: the file is not JSON");
  expect_refusal("--cluster moon --model-profile cnn.json", "--cluster: cluster is \"moon\"; permitted: hl1, ");
  expect_refusal("--cluster dynamic --model-profile cnn.json", "--cluster: cluster is \"dynamic\", which changes");
  expect_refusal(both + "--global-batch many", "--global-batch is 'many'; permitted: a whole number from 1 to ");
  expect_refusal(both + "--global-batch 2", "--global-batch: the workers take at least 3 samples together");
  expect_refusal(both + "--overlap 2", "--overlap is 2; permitted: 0 to 1");
  expect_refusal(both + "--json none/r.json", "--json is 'none/r.json'; permitted: ");
  write("bad.toml", "[[machine]]\nspeed = \"fast\"\n");
  expect_refusal(
      "--machines bad.toml --model-profile cnn.json", "bad.toml:2: speed is 'fast'; permitted: a finite number");
  write("cluster.toml", "name = \"mine\"\n[[worker]]\nspeed = 1.0\n");
  expect_refusal(
      "--machines cluster.toml --model-profile cnn.json", "cluster.toml:2: this is a cluster file; permitted: tables");
}

}  // namespace
}  // namespace isochron::cli
