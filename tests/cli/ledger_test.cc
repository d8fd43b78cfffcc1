// `isochron ledger` on logs that are right, wrong, forged and damaged.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/shell_test.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "isochron/io/run_log_writer.h"

namespace isochron::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kBatch = 100;
constexpr std::int64_t kSamples = 950;  // nine steps of 100 and one of 50

StepRecord step_of(std::int64_t number) {
  const std::int64_t position = number % 10 * kBatch;
  const std::int64_t samples = std::min(kBatch, kSamples - position);
  return {
      .step = number,
      .epoch = number / 10,
      .position = position,
      .seconds = 0.5,
      .workers = {{.id = 0, .batch = samples / 5}, {.id = 1, .batch = samples - samples / 5}},
      .loss = 1.25};
}

class LedgerCommandTest : public ShellTest {
 protected:
  /// 25 steps, in which worker 1 dies, the job goes back from step 15 to 12 and another process goes on at step 20.
  static std::vector<std::string> lines() {
    std::ostringstream stream;
    io::RunLogWriter writer(stream, "run.jsonl");
    writer.write(
        RunHeader{.program = "train", .global_batch = kBatch, .samples_per_epoch = kSamples, .total_steps = 30});
    for (std::int64_t number = 0; number < 15; ++number) {
      writer.write(step_of(number));
    }
    writer.write(EventRecord{.step = 15, .seconds = 7.5, .event = "death", .worker = 1});
    writer.write(EventRecord{.step = 12, .seconds = 7.6, .event = "rollback"});
    for (std::int64_t number = 12; number < 25; ++number) {
      if (number == 20) {
        writer.write(EvaluationRecord{.step = 20, .seconds = 10.0, .loss = 0.5, .accuracy = 0.875});
        writer.write(EventRecord{.step = 20, .event = "resume"});
      }
      writer.write(step_of(number));
    }
    std::vector<std::string> lines;
    std::istringstream text(stream.str());
    for (std::string line; std::getline(text, line);) {
      lines.push_back(line);
    }
    return lines;
  }

  /// Writes `lines` to run.jsonl and looks at it.
  [[nodiscard]] Outcome ledger(const std::vector<std::string>& lines, const std::string& options = "") const {
    std::ofstream stream(folder_ / "run.jsonl", std::ios::binary);
    for (const std::string& line : lines) {
      stream << line << '\n';
    }
    stream.close();
    return shell("'" ISOCHRON_PROGRAM "' ledger run.jsonl " + options);
  }

  void expect_not_proven(const std::vector<std::string>& lines, const std::string& reason) const {
    const Outcome outcome = ledger(lines);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.output, HasSubstr("\nNot proven: " + reason));
    EXPECT_THAT(outcome.errors, IsEmpty());
  }
};

TEST_F(LedgerCommandTest, ProvesARunAcrossDeathRollbackAndResume) {
  const Outcome outcome = ledger(lines());
  EXPECT_EQ(outcome.status, 0) << outcome.output << outcome.errors;
  EXPECT_EQ(
      outcome.output,
      "25 steps count, 3 were taken back; death 1; resume 1; rollback 1\n\n"
      "epoch  used  doubled  missing  finished\n"
      "0       950        0        0       yes\n"
      "1       950        0        0       yes\n"
      "2       500        0        0        no\n\n"
      "Proven: every sample of the 2 finished epochs was used exactly once; epoch 2 is unfinished, 500 of 950 samples "
      "used; the log ends after 25 of 30 steps.\n");
}

TEST_F(LedgerCommandTest, WritesJson) {
  const Outcome outcome = ledger(lines(), "--json -");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const json document = json::parse(outcome.output);
  EXPECT_EQ(document.at("command"), "ledger");
  EXPECT_EQ(document.at("proven"), true);
  EXPECT_EQ(document.at("taken_back"), 3);
  EXPECT_EQ(document.at("chained"), true);
  ASSERT_EQ(document.at("results").size(), 3U);
  EXPECT_EQ(document.at("results").at(2).at("used"), 500);
  EXPECT_EQ(document.at("results").at(2).at("finished"), false);

  std::vector<std::string> changed = lines();
  changed.erase(changed.begin() + 3);  // step 2: positions 200 to 299
  const Outcome wrong = ledger(changed, "--json out.json");
  EXPECT_EQ(wrong.status, 1);
  const json report = json::parse(content(folder_ / "out.json"));
  EXPECT_EQ(report.at("proven"), false);
  EXPECT_EQ(report.at("broken_line"), 4);
  EXPECT_EQ(report.at("findings").at(0).at("finding"), "step 3 comes where step 2 should");
  EXPECT_EQ(
      report.at("results").at(0).at("not_used"), json::parse(R"([{"after_step": 1, "first": 200, "last": 299}])"));
}

TEST_F(LedgerCommandTest, SaysWhereSamplesWereUsedAgainOrNotAtAll) {
  std::ostringstream stream;
  io::RunLogWriter writer(stream, "run.jsonl");
  writer.write(RunHeader{.global_batch = kBatch, .samples_per_epoch = kSamples});
  for (std::int64_t number = 0; number < 10; ++number) {
    StepRecord step = step_of(number);
    step.position -= number == 4 ? 30 : 0;
    writer.write(step);
  }
  std::ofstream(folder_ / "run.jsonl") << stream.str();
  const Outcome outcome = shell("'" ISOCHRON_PROGRAM "' ledger run.jsonl");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(
      outcome.output,
      AllOf(
          // of the 30, worker 0 takes its 20 first
          HasSubstr("\nline 6: epoch 0: positions 370 to 389 used again in step 4 by worker 0\n"),
          HasSubstr("\nline 6: epoch 0: positions 390 to 399 used again in step 4 by worker 1\n"),
          HasSubstr("\nepoch 0: positions 470 to 499 not used, after step 4\n"),
          HasSubstr("\nNot proven: samples were used again, 30 times in all; 30 samples were not used.\n")));
}

TEST_F(LedgerCommandTest, NoticesAnEditedNumber) {
  std::vector<std::string> edited = lines();
  std::string& line = edited[9];
  line.replace(line.find("\"loss\":1.25"), 11, "\"loss\":0.25");
  expect_not_proven(edited, "line 10 does not fit the chain.");
}

TEST_F(LedgerCommandTest, NoticesARemovedLine) {
  std::vector<std::string> removed = lines();
  removed.erase(removed.begin() + 16);  // the death, which no account needs
  ASSERT_THAT(lines()[16], HasSubstr("death"));
  expect_not_proven(removed, "line 17 does not fit the chain.");
}

TEST_F(LedgerCommandTest, NoticesARepeatedLine) {
  std::vector<std::string> repeated = lines();
  repeated.insert(repeated.begin() + 6, repeated[5]);
  expect_not_proven(repeated, "line 7 does not fit the chain; samples were used again, 100 times in all; step 4 comes");
}

TEST_F(LedgerCommandTest, NoticesAMovedLine) {
  std::vector<std::string> moved = lines();
  std::swap(moved[20], moved[21]);
  expect_not_proven(moved, "line 21 does not fit the chain");
}

TEST_F(LedgerCommandTest, NoticesALineFromAnotherLog) {
  std::vector<std::string> mixed = lines();
  std::ostringstream stream;
  io::RunLogWriter(stream, "other").write(step_of(3));
  mixed[4] = stream.str().substr(0, stream.str().size() - 1);
  expect_not_proven(mixed, "line 5 does not fit the chain.");
}

TEST_F(LedgerCommandTest, NoticesACutFile) {
  std::vector<std::string> cut = lines();
  cut.resize(12);
  const std::string last = cut.back();
  cut.pop_back();
  // Within a line.
  (void)ledger(cut);
  std::ofstream(folder_ / "run.jsonl", std::ios::binary | std::ios::app) << last.substr(0, last.size() / 2);
  const Outcome outcome = shell("'" ISOCHRON_PROGRAM "' ledger run.jsonl");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("Not proven: the last line, 12, is cut off.\n"));
  // Between two lines it is the log of a run that was killed there.
  EXPECT_THAT(ledger(cut).output, HasSubstr("; the log ends after 10 of 30 steps.\n"));
}

TEST_F(LedgerCommandTest, NoticesALineThatCannotBeRead) {
  std::vector<std::string> damaged = lines();
  damaged[7][0] = '\0';
  expect_not_proven(damaged, "line 8 cannot be read; line 8 does not fit the chain.");
}

TEST_F(LedgerCommandTest, ALogWithoutAChainProvesNothing) {
  std::vector<std::string> plain;
  for (const std::string& line : lines()) {
    plain.push_back(split_link(line)->line);
  }
  expect_not_proven(plain, "the log has no chain");
}

TEST_F(LedgerCommandTest, RefusesWhatIsNoRunLog) {
  const auto expect_refusal = [this](const std::string& arguments, const std::string& message) {
    SCOPED_TRACE(arguments);
    expect_refused(shell("'" ISOCHRON_PROGRAM "' ledger " + arguments), message);
  };
  std::ofstream(folder_ / "empty") << "";
  std::ofstream(folder_ / "text") << "my thesis\n";
  expect_refusal("", "RUN is required");
  expect_refusal("none", "cannot read 'none': No such file or directory");
  expect_refusal(".", "cannot read '.': Is a directory");
  expect_refusal("empty", "empty: it has no whole line; permitted: a run log");
  expect_refusal("text", "text:1: the line is not JSON");
  expect_refusal("text --json text", "'text' is given for two outputs");
}

TEST_F(LedgerCommandTest, ProvesASimulatedRunAcrossDeathsAndJoins) {
  const std::string program = "'" ISOCHRON_PROGRAM "' ";
  const Outcome outcome = shell(
      program + "simulate --cluster spot --policy isochron --steps 200 --log run.jsonl >/dev/null && " + program +
      "ledger run.jsonl --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.output << outcome.errors;
  const json document = json::parse(outcome.output);
  EXPECT_EQ(document.at("proven"), true);
  EXPECT_GE(document.at("events").at("kill"), 1);
  EXPECT_GE(document.at("events").at("join"), 1);
  EXPECT_EQ(document.at("results").at(0).at("finished"), true);
}

}  // namespace
}  // namespace isochron::cli
