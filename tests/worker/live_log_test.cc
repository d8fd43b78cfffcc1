#include "isochron/worker/live_log.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "tests/own_path.h"
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

TEST_F(LiveLogTest, NamesAFileThatCannotBeWritten) {
  EXPECT_THROW(LiveLog("/dev/null/log", {}, 0), std::invalid_argument);
}

}  // namespace
}  // namespace isochron::worker
