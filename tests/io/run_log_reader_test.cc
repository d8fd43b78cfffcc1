#include "isochron/io/run_log_reader.h"

#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"
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
      .samples_per_epoch = 60'000,
      .total_steps = 4'690,
      .model = "cnn:width=16",
      .dataset = "mnist",
      .workers = {{.id = 0, .name = "fast", .kind = "gpu"}, {.id = 9, .name = "slow", .kind = "cpu"}}};
}

StepRecord sample_step() {
  return {
      .step = 41,
      .epoch = 2,
      .position = 5'248,
      .start_seconds = 0.1 + 0.2,
      .seconds = 1.0 / 3.0,
      .workers =
          {{.id = 0,
            .batch = 100,
            .start_seconds = 0.3,
            .compute_seconds = 0.25,
            .wait_seconds = 1e-9,
            .exchange_seconds = 0.01,
            .usage = {.peak_memory = 0.125},
            .work = 700.5,
            .padding = 20.0},
           {.id = std::numeric_limits<WorkerId>::max(), .batch = 28}},
      .learning_rate_factor = 0.5,
      .changed = true,
      .reason = Reason::kNoTelemetry,
      .words = "ünïcode",
      .loss = 2.302585};
}

UpdateRecord sample_update() {
  return {
      .step = 42,
      .epoch = 2,
      .position = 5'376,
      .seconds = 1.0 / 3.0,
      .worker = {.id = 3, .batch = 28, .start_seconds = 0.3, .compute_seconds = 0.25, .exchange_seconds = 0.01},
      .changed = true,
      .reason = Reason::kRebalanced,
      .words = "why",
      .loss = 2.5,
      .staleness = 0};
}

EventRecord sample_event() {
  return {.step = 5, .seconds = 1.25, .event = "kill", .worker = 9, .words = "lost"};
}

EvaluationRecord sample_evaluation() {
  return {.step = 42, .seconds = 20.5, .loss = 0.3, .accuracy = 0.9125};
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

TEST(RunLogReaderTest, ReadsBackEveryFieldOfWhatItWrote) {
  std::ostringstream stream;
  RunLogWriter writer(stream, "run.jsonl");
  writer.write(sample_header());
  writer.write(sample_step());
  writer.write(sample_event());
  writer.write(sample_evaluation());
  const std::vector<RunLogLine> lines = read_all(stream.str());
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(std::get<RunHeader>(lines[0]), sample_header());
  EXPECT_EQ(std::get<StepRecord>(lines[1]), sample_step());
  EXPECT_EQ(std::get<EventRecord>(lines[2]), sample_event());
  EXPECT_EQ(std::get<EvaluationRecord>(lines[3]), sample_evaluation());
}

TEST(RunLogReaderTest, ALineWithAStalenessIsAnUpdate) {
  for (const std::string blank : {"", " "}) {  // with a blank it is the parser's
    const std::string line = "{" + blank + to_json(sample_update()).substr(1) + "\n";
    EXPECT_EQ(std::get<UpdateRecord>(read_all(header_line() + line).at(1)), sample_update());
  }
  std::string two = to_json(sample_step());
  two.back() = ',';
  EXPECT_THROW((void)read_all(header_line() + two + "\"staleness\":1}\n"), std::invalid_argument);
}

TEST(RunLogReaderTest, ReadsEveryReason) {
  for (int i = 0; i <= static_cast<int>(Reason::kNoTelemetry); ++i) {
    StepRecord step = sample_step();
    step.reason = static_cast<Reason>(i);
    EXPECT_EQ(std::get<StepRecord>(read_all(header_line() + to_json(step) + "\n").at(1)).reason, step.reason);
  }
}

TEST(RunLogReaderTest, ReadsNullAsUnknownAndDefaultsWhatIsLeftOut) {
  StepRecord step{.seconds = std::numeric_limits<double>::infinity()};
  const auto copy = std::get<StepRecord>(read_all(header_line() + to_json(step) + "\n").at(1));
  EXPECT_TRUE(std::isnan(copy.seconds));
  EXPECT_TRUE(std::isnan(copy.loss));
  EXPECT_EQ(copy.epoch, -1);
  EXPECT_EQ(copy.position, -1);
  EXPECT_TRUE(copy.words.empty());
}

TEST(RunLogReaderTest, IgnoresKeysOfNewerVersionsAndALineWithoutItsEnd) {
  std::string step = to_json(sample_step());
  step.insert(1, R"("new_key":[{"a":1}],)");
  EXPECT_EQ(read_all(header_line() + step + "\n").size(), 2U);
  EXPECT_EQ(read_all(header_line() + step.substr(0, 20)).size(), 1U);
  EXPECT_TRUE(read_all("").empty());
}

TEST(RunLogReaderTest, NamesTheLineAndWhatIsWrong) {
  EXPECT_EQ(refusal(header_line() + "not json\n"), "run.jsonl:2: the line is not JSON");
  EXPECT_EQ(refusal(header_line() + "[]\n"), "run.jsonl:2: the line is not a JSON object");
  EXPECT_EQ(refusal(header_line() + "{\"type\":\"step\"}\n"), "run.jsonl:2: step is missing");
  EXPECT_EQ(refusal(header_line() + header_line()), "run.jsonl:2: a second header");
  EXPECT_THAT(refusal(to_json(sample_step()) + "\n"), StartsWith("run.jsonl:1: the first line is no header"));
  EXPECT_THAT(refusal(header_line() + "{\"type\":\"x\"}\n"), HasSubstr("permitted: run, step, event, evaluation"));
}

/// sample_step() as a line, with `from` replaced by `to`.
std::string altered_step(const std::string& from, const std::string& to) {
  std::string line = to_json(sample_step());
  const std::size_t place = line.find(from);
  EXPECT_NE(place, std::string::npos);
  return header_line() + line.replace(place, from.size(), to) + "\n";
}

TEST(RunLogReaderTest, RefusesFieldsOfTheWrongTypeOrRange) {
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

TEST(RunLogReaderTest, RefusesAnotherSchema) {
  std::string line = header_line();
  line.replace(line.find("\"schema\":1"), 10, "\"schema\":2");
  EXPECT_EQ(refusal(line), "run.jsonl:1: schema is 2; permitted: 1");
}

TEST(RunLogReaderTest, RefusesAbsurdSizes) {
  EXPECT_THAT(refusal(std::string((8U << 20U) + 1, ' ')), HasSubstr("more than 8388608 bytes"));
  EXPECT_THAT(
      refusal(header_line() + std::string(1'000'000, '[') + "\n"),
      AllOf(StartsWith("run.jsonl:2: "), HasSubstr("nested too deeply")));
}

/// A header, three steps and an event, chained.
std::vector<std::string> chained_lines() {
  std::ostringstream stream;
  RunLogWriter writer(stream, "run.jsonl");
  writer.write(sample_header());
  for (const std::int64_t step : {0, 1, 2}) {
    writer.write(StepRecord{.step = step});
  }
  writer.write(sample_event());
  std::vector<std::string> lines;
  std::istringstream text(stream.str());
  for (std::string line; std::getline(text, line);) {
    lines.push_back(line + "\n");
  }
  return lines;
}

/// The first line that breaks the chain; 0: none. All lines are read nevertheless.
std::int64_t broken_line(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line;
  }
  std::istringstream stream(text);
  RunLogReader reader(stream, "run.jsonl");
  std::size_t count = 0;
  while (reader.next()) {
    ++count;
  }
  EXPECT_EQ(count, lines.size());
  return reader.broken_line();
}

TEST(RunLogReaderTest, TellsTheFirstLineThatDoesNotFitTheChain) {
  const std::vector<std::string> lines = chained_lines();
  EXPECT_EQ(broken_line(lines), 0);

  std::vector<std::string> edited = lines;
  edited[2].replace(edited[2].find("\"step\":1"), 8, "\"step\":7");
  EXPECT_EQ(broken_line(edited), 3);

  std::vector<std::string> removed = lines;
  removed.erase(removed.begin() + 1);
  EXPECT_EQ(broken_line(removed), 2);

  std::vector<std::string> repeated = lines;
  repeated.insert(repeated.begin() + 3, lines[2]);
  EXPECT_EQ(broken_line(repeated), 4);

  std::vector<std::string> swapped = lines;
  std::swap(swapped[1], swapped[2]);
  EXPECT_EQ(broken_line(swapped), 2);

  std::vector<std::string> without_link = lines;
  without_link[3] = to_json(StepRecord{.step = 2}) + "\n";
  EXPECT_EQ(broken_line(without_link), 4);
}

TEST(RunLogReaderTest, ReadsALogWithoutAChain) {
  std::istringstream stream(header_line() + to_json(sample_step()) + "\n");
  RunLogReader reader(stream, "run.jsonl");
  while (reader.next()) {
  }
  EXPECT_FALSE(reader.chained());
  EXPECT_EQ(reader.broken_line(), 0);
  EXPECT_FALSE(reader.cut_off());
}

TEST(RunLogReaderTest, TellsThatTheLastLineIsCutOff) {
  std::istringstream stream(chained_lines()[0] + chained_lines()[1].substr(0, 30));
  RunLogReader reader(stream, "run.jsonl");
  while (reader.next()) {
  }
  EXPECT_TRUE(reader.cut_off());
  EXPECT_TRUE(reader.chained());
  EXPECT_EQ(reader.broken_line(), 0);
}

TEST(RunLogReaderTest, NamesTheFileThatRefusesALine) {
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
