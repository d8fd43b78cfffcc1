#include "isochron/worker/live_log.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "tests/own_path.h"
#include "tests/small_disk.h"
#include <gtest/gtest.h>

#include "isochron/io/run_log_reader.h"

namespace isochron::worker {
namespace {

class LiveLogTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  [[nodiscard]] std::vector<io::RunLogLine> lines() const {
    std::ifstream stream(path_);
    io::RunLogReader reader(stream, path_);
    std::vector<io::RunLogLine> lines;
    while (auto line = reader.next()) {
      lines.push_back(*line);
    }
    return lines;
  }

  const std::string path_ = own_path(".jsonl").string();
};

TEST_F(LiveLogTest, CanBeReadWhileItIsWritten) {
  LiveLog log(path_, {.program = "train"}, 0);
  EXPECT_EQ(lines().size(), 1U);
  log.write(StepRecord{.step = 0});
  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(std::get<StepRecord>(lines()[1]).step, 0);
}

TEST_F(LiveLogTest, GoesOnWhenTheRunDoesAndElseStartsAnew) {
  LiveLog(path_, {}, 0).write(StepRecord{.step = 0});
  LiveLog(path_, {}, 1).write(StepRecord{.step = 1});
  ASSERT_EQ(lines().size(), 4U);
  EXPECT_EQ(std::get<EventRecord>(lines()[2]).event, "resume");
  EXPECT_EQ(std::get<EventRecord>(lines()[2]).step, 1);
  EXPECT_EQ(std::get<StepRecord>(lines()[3]).step, 1);
  LiveLog(path_, {}, 0).write(StepRecord{.step = 0});
  EXPECT_EQ(lines().size(), 2U);
}

TEST_F(LiveLogTest, HasAHeaderEvenIfItsRunBeganWithoutIt) {
  LiveLog(path_, {}, 5).write(StepRecord{.step = 5});
  EXPECT_TRUE(std::holds_alternative<RunHeader>(lines()[0]));
}

// What the lost worker had written is not written again.
TEST_F(LiveLogTest, IsTakenOverWhereItEnded) {
  LiveLog(path_, {}, 0).write(StepRecord{.step = 0});
  LiveLog heir(path_, {}, 2, LiveLog::Begin::kTakeOver);
  heir.write(StepRecord{.step = 0});
  heir.write(StepRecord{.step = 1});
  ASSERT_EQ(lines().size(), 3U);
  EXPECT_EQ(std::get<StepRecord>(lines()[2]).step, 1);
}

// Who takes over keeps the last lines only: those before them went with the worker that could not write them.
TEST_F(LiveLogTest, SaysWhichStepsAreMissingWhenItIsTakenOver) {
  LiveLog(path_, {}, 0).write(StepRecord{.step = 0});
  std::vector<std::string> warnings;
  LiveLog heir(path_, {}, 9, LiveLog::Begin::kTakeOver, [&](const std::string& text) { warnings.push_back(text); });
  heir.write(StepRecord{.step = 7});
  heir.write(StepRecord{.step = 8});
  ASSERT_EQ(lines().size(), 5U);
  const auto said = std::get<EventRecord>(lines()[2]);
  EXPECT_EQ(said.event, "unlogged");
  EXPECT_NE(said.words.find("steps 1 to 6 are missing"), std::string::npos) << said.words;
  EXPECT_EQ(std::get<StepRecord>(lines()[3]).step, 7);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("steps 1 to 6"), std::string::npos) << warnings[0];
}

TEST_F(LiveLogTest, SurvivesAFullDiskAndSaysWhatIsMissing) {
  const SmallDisk disk(std::size_t{64} << 10U);
  if (!disk.why_not().empty()) {
    GTEST_SKIP() << disk.why_not();
  }
  const std::string path = (disk.path() / "run.jsonl").string();
  std::vector<std::string> warnings;
  LiveLog log(
      path, {.program = "train"}, 0, LiveLog::Begin::kRun, [&](const std::string& text) { warnings.push_back(text); });
  const std::string filler(std::size_t{1} << 20U, 'x');
  std::ofstream(disk.path() / "filler") << filler;
  const auto most = static_cast<std::int64_t>(io::LastingLog::kMostWaiting);
  const std::int64_t steps = most + 100;
  for (std::int64_t step = 0; step < steps; ++step) {
    log.write(StepRecord{.step = step});
  }
  ASSERT_EQ(warnings.size(), 1U) << "loud, but once";
  EXPECT_NE(warnings[0].find("No space left on device"), std::string::npos) << warnings[0];
  EXPECT_NE(log.trouble(), "");
  std::filesystem::remove(disk.path() / "filler");
  log.write(StepRecord{.step = steps});
  std::ifstream stream(path);
  io::RunLogReader reader(stream, path);
  std::vector<io::RunLogLine> read;
  while (auto line = reader.next()) {
    read.push_back(*line);
  }
  EXPECT_EQ(reader.broken_line(), 0);
  ASSERT_GT(read.size(), 2U);
  const auto said =
      std::ranges::find_if(read, [](const io::RunLogLine& line) { return std::holds_alternative<EventRecord>(line); });
  ASSERT_NE(said, read.end());
  EXPECT_EQ(std::get<EventRecord>(*said).event, "unlogged");
  EXPECT_NE(std::get<EventRecord>(*said).words.find(" of them are missing here"), std::string::npos);
}

TEST_F(LiveLogTest, NamesAFileThatCannotBeWritten) {
  EXPECT_THROW(LiveLog("/dev/null/log", {}, 0), std::invalid_argument);
}

}  // namespace
}  // namespace isochron::worker
