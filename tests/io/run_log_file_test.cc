#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"
#include "isochron/io/run_log_reader.h"
#include "isochron/io/run_log_writer.h"

namespace isochron::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

RunHeader sample_header() {
  return {
      .program = "simulate",
      .version = "0.1.0",
      .policy = "omnilearn:dead-band=0.1",
      .cluster = "a \"quoted\"\nname",
      .global_batch = 128,
      .seed = std::numeric_limits<std::uint64_t>::max(),
      .workers = {{.id = 0, .name = "fast", .kind = "gpu"}, {.id = 9, .name = "slow", .kind = "cpu"}}};
}

StepRecord sample_step() {
  return {
      .step = 41,
      .start_seconds = 0.1 + 0.2,
      .seconds = 1.0 / 3.0,
      .workers =
          {{.id = 0,
            .batch = 100,
            .start_seconds = 0.3,
            .compute_seconds = 0.25,
            .wait_seconds = 1e-9,
            .exchange_seconds = 0.01},
           {.id = std::numeric_limits<WorkerId>::max(), .batch = 28}},
      .learning_rate_factor = 0.5,
      .changed = true,
      .reason = Reason::kNoTelemetry,
      .words = "ünïcode",
      .loss = 2.302585,
      .staleness = 3};
}

EventRecord sample_event() {
  return {.step = 5, .seconds = 1.25, .event = "kill", .worker = 9, .words = "lost"};
}

std::vector<RunLogLine> read_all(const std::string& text) {
  std::istringstream stream(text);
  RunLogReader reader(stream, "run.jsonl");
  std::vector<RunLogLine> lines;
  while (auto line = reader.next()) {
    lines.push_back(std::move(*line));
  }
  return lines;
}

std::string refusal(const std::string& text) {
  try {
    (void)read_all(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << text.substr(0, 200);
  return "";
}

const std::string& header_line() {
  static const std::string line = to_json(sample_header()) + "\n";
  return line;
}

TEST(RunLogFileTest, ReadsBackEveryFieldOfWhatItWrote) {
  std::ostringstream stream;
  RunLogWriter writer(stream, "run.jsonl");
  writer.write(sample_header());
  writer.write(sample_step());
  writer.write(sample_event());
  const std::vector<RunLogLine> lines = read_all(stream.str());
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(std::get<RunHeader>(lines[0]), sample_header());
  EXPECT_EQ(std::get<StepRecord>(lines[1]), sample_step());
  EXPECT_EQ(std::get<EventRecord>(lines[2]), sample_event());
}

TEST(RunLogFileTest, ReadsEveryReason) {
  for (int i = 0; i <= static_cast<int>(Reason::kNoTelemetry); ++i) {
    StepRecord step = sample_step();
    step.reason = static_cast<Reason>(i);
    EXPECT_EQ(std::get<StepRecord>(read_all(header_line() + to_json(step) + "\n").at(1)).reason, step.reason);
  }
}

TEST(RunLogFileTest, ReadsNullAsUnknownAndDefaultsWhatIsLeftOut) {
  StepRecord step{.seconds = std::numeric_limits<double>::infinity()};
  const auto copy = std::get<StepRecord>(read_all(header_line() + to_json(step) + "\n").at(1));
  EXPECT_TRUE(std::isnan(copy.seconds));
  EXPECT_TRUE(std::isnan(copy.loss));
  EXPECT_EQ(copy.staleness, -1);
  EXPECT_TRUE(copy.words.empty());
}

TEST(RunLogFileTest, IgnoresKeysOfNewerVersionsAndALineWithoutItsEnd) {
  std::string step = to_json(sample_step());
  step.insert(1, R"("new_key":[{"a":1}],)");
  EXPECT_EQ(read_all(header_line() + step + "\n").size(), 2U);
  EXPECT_EQ(read_all(header_line() + step.substr(0, 20)).size(), 1U);
  EXPECT_TRUE(read_all("").empty());
}

TEST(RunLogFileTest, NamesTheLineAndWhatIsWrong) {
  EXPECT_EQ(refusal(header_line() + "not json\n"), "run.jsonl:2: the line is not JSON");
  EXPECT_EQ(refusal(header_line() + "[]\n"), "run.jsonl:2: the line is not a JSON object");
  EXPECT_EQ(refusal(header_line() + "{\"type\":\"step\"}\n"), "run.jsonl:2: step is missing");
  EXPECT_EQ(refusal(header_line() + header_line()), "run.jsonl:2: a second header");
  EXPECT_THAT(refusal(to_json(sample_step()) + "\n"), StartsWith("run.jsonl:1: the first line is no header"));
  EXPECT_THAT(refusal(header_line() + "{\"type\":\"x\"}\n"), HasSubstr("permitted: run, step, event"));
}

/// sample_step() as a line, with `from` replaced by `to`.
std::string altered_step(const std::string& from, const std::string& to) {
  std::string line = to_json(sample_step());
  const std::size_t place = line.find(from);
  EXPECT_NE(place, std::string::npos);
  return header_line() + line.replace(place, from.size(), to) + "\n";
}

TEST(RunLogFileTest, RefusesFieldsOfTheWrongTypeOrRange) {
  EXPECT_THAT(refusal(altered_step("\"step\":41", "\"step\":-1")), HasSubstr("step is of another type or out of"));
  EXPECT_THAT(refusal(altered_step("\"step\":41", "\"step\":9007199254740993")), HasSubstr("0 to 2^53"));
  EXPECT_THAT(refusal(altered_step("\"step\":41", "\"step\":1.5")), HasSubstr("whole number"));
  EXPECT_THAT(refusal(altered_step("\"changed\":true", "\"changed\":1")), HasSubstr("true or false"));
  EXPECT_THAT(refusal(altered_step("no-telemetry", "no-reason")), HasSubstr("the name of a reason"));
  EXPECT_THAT(
      refusal(altered_step("[100,28]", "[100]")), HasSubstr("batch_sizes has 1 entries; permitted: one per worker, 2"));
  EXPECT_THAT(refusal(altered_step("[100,28]", "7")), HasSubstr("batch_sizes is of another type"));
  EXPECT_THAT(refusal(altered_step("\"loss\":2.302585", "\"loss\":1e999")), HasSubstr("not JSON"));
}

TEST(RunLogFileTest, RefusesAnotherSchema) {
  std::string line = header_line();
  line.replace(line.find("\"schema\":1"), 10, "\"schema\":2");
  EXPECT_EQ(refusal(line), "run.jsonl:1: schema is 2; permitted: 1");
}

TEST(RunLogFileTest, RefusesAbsurdSizes) {
  EXPECT_THAT(refusal(std::string((8U << 20U) + 1, ' ')), HasSubstr("more than 8388608 bytes"));
  EXPECT_THAT(
      refusal(header_line() + std::string(1'000'000, '[') + "\n"),
      AllOf(StartsWith("run.jsonl:2: "), HasSubstr("nested too deeply")));
}

TEST(RunLogFileTest, NamesTheFileThatRefusesALine) {
  std::ostringstream stream;
  stream.setstate(std::ios::badbit);
  RunLogWriter writer(stream, "run.jsonl");
  try {
    writer.write(sample_event());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("run.jsonl"));
  }
}

}  // namespace
}  // namespace isochron::io
