#include "isochron/io/run_log_file.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <variant>
#include <vector>

#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "isochron/core/error.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::io {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using Start = RunLogFile::Start;

class RunLogFileTest : public testing::Test {
 protected:
  void TearDown() override { fs::remove(path_); }

  [[nodiscard]] std::string text() const {
    std::ifstream stream(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  void put(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  /// The records; the chain must hold.
  [[nodiscard]] std::vector<RunLogLine> lines() const {
    std::ifstream stream(path_, std::ios::binary);
    RunLogReader reader(stream, path_);
    std::vector<RunLogLine> lines;
    while (auto line = reader.next()) {
      lines.push_back(*line);
    }
    EXPECT_TRUE(reader.chained());
    EXPECT_EQ(reader.broken_line(), 0);
    EXPECT_FALSE(reader.cut_off());
    return lines;
  }

  [[nodiscard]] std::string refusal(const RunHeader& header = {}) const {
    try {
      const RunLogFile log(path_, header, Start::kContinue);
    } catch (const Error& error) {
      return error.what();
    }
    ADD_FAILURE() << "went on";
    return "";
  }

  const std::string path_ = own_path(".jsonl").string();
};

TEST_F(RunLogFileTest, IsWholeAfterEveryLine) {
  RunLogFile log(path_, {.program = "train"}, Start::kAnew);
  EXPECT_EQ(lines().size(), 1U);
  EXPECT_FALSE(log.continued());
  log.write(StepRecord{.step = 0});
  EXPECT_EQ(std::get<StepRecord>(lines().at(1)).step, 0);
  log.write(EvaluationRecord{.step = 1, .loss = 0.5, .accuracy = 0.75});
  EXPECT_EQ(std::get<EvaluationRecord>(lines().at(2)).accuracy, 0.75);
}

TEST_F(RunLogFileTest, SetsALogOfAnotherRunAside) {
  const auto aside = [&](int number) { return fs::path(path_).replace_extension(std::to_string(number) + ".jsonl"); };
  {
    const RunLogFile empty(path_, {.program = "header alone"}, Start::kAnew);
  }
  for (int run = 0; run < 3; ++run) {
    RunLogFile log(path_, {.program = std::to_string(run)}, Start::kAnew);
    EXPECT_EQ(log.set_aside(), run == 0 ? fs::path() : aside(run));
    log.write(StepRecord{.step = run});
  }
  EXPECT_EQ(std::get<RunHeader>(lines().at(0)).program, "2");
  for (int run = 0; run < 2; ++run) {
    fs::rename(aside(run + 1), path_);
    EXPECT_EQ(std::get<RunHeader>(lines().at(0)).program, std::to_string(run));
    EXPECT_EQ(std::get<StepRecord>(lines().at(1)).step, run);
  }
}

TEST_F(RunLogFileTest, GoesOnAfterTheLastWholeLine) {
  RunLogFile(path_, {.program = "first"}, Start::kAnew).write(StepRecord{.step = 0});
  put(text() + R"({"type":"step","step":1,"st)");
  {
    RunLogFile log(path_, {.program = "second"}, Start::kContinue);
    EXPECT_TRUE(log.continued());
    EXPECT_EQ(log.next_step(), 1);
    log.write(EventRecord{.step = 1, .event = "resume"});
    log.write(StepRecord{.step = 1});
  }
  ASSERT_EQ(lines().size(), 4U);
  EXPECT_EQ(std::get<RunHeader>(lines()[0]).program, "first");
  EXPECT_EQ(std::get<EventRecord>(lines()[2]).event, "resume");
  EXPECT_EQ(std::get<StepRecord>(lines()[3]).step, 1);
}

TEST_F(RunLogFileTest, KnowsTheNextStepFromTheLastLineThatSaysIt) {
  {
    RunLogFile log(path_, {}, Start::kAnew);
    log.write(StepRecord{.step = 7});
    log.write(EventRecord{.step = 8, .event = "death"});
  }
  {
    RunLogFile log(path_, {}, Start::kContinue);
    EXPECT_EQ(log.next_step(), 8);
    log.write(EventRecord{.step = 4, .event = "rollback"});
  }
  EXPECT_EQ(RunLogFile(path_, {}, Start::kContinue).next_step(), 4);
}

// More events than the first look at the end covers, after one long step.
TEST_F(RunLogFileTest, FindsAStepThatLiesFarFromTheEnd) {
  {
    RunLogFile log(path_, {}, Start::kAnew);
    log.write(StepRecord{.step = 5, .workers = std::vector<WorkerStep>(2'000)});
    for (int i = 0; i < 2'000; ++i) {
      log.write(EventRecord{.step = 6, .event = "stall", .words = std::string(100, 'x')});
    }
  }
  RunLogFile log(path_, {}, Start::kContinue);
  EXPECT_EQ(log.next_step(), 6);
  log.write(StepRecord{.step = 6});
  EXPECT_EQ(lines().size(), 2'003U);
}

TEST_F(RunLogFileTest, BeginsWhatIsMissingEmptyOrHalfAHeader) {
  for (const char* const before : {"", "{\"ty", R"({"type":"run","schema":1,"pro)"}) {
    put(before);
    RunLogFile log(path_, {.program = "train"}, Start::kContinue);
    EXPECT_FALSE(log.continued());
    EXPECT_EQ(log.next_step(), 0);
    EXPECT_EQ(std::get<RunHeader>(lines().at(0)).program, "train");
  }
  fs::remove(path_);
  EXPECT_FALSE(RunLogFile(path_, {}, Start::kContinue).continued());
}

TEST_F(RunLogFileTest, LeavesAFileAloneThatIsNoLogOfThisRun) {
  for (const char* const foreign : {"my thesis", "my thesis\n", "{}\n"}) {
    put(foreign);
    EXPECT_THAT(refusal(), AllOf(HasSubstr(path_), HasSubstr("is no run log"))) << foreign;
    EXPECT_EQ(text(), foreign);
  }
  {
    const RunLogFile log(path_, {.global_batch = 128, .seed = 1, .samples_per_epoch = 60}, Start::kAnew);
  }
  EXPECT_THAT(refusal({.global_batch = 128, .seed = 2}), HasSubstr("whose seed is 1, not 2"));
  EXPECT_THAT(refusal({.global_batch = 64, .seed = 1}), HasSubstr("whose global batch is 128, not 64"));
  EXPECT_THAT(
      refusal({.global_batch = 128, .seed = 1, .samples_per_epoch = 50}),
      HasSubstr("whose epoch in samples is 60, not 50"));
  EXPECT_EQ(lines().size(), 1U);
}

TEST_F(RunLogFileTest, GoesOnWithoutAChainWhereThereIsNone) {
  put(to_json(RunHeader{}) + "\n" + to_json(StepRecord{.step = 3}) + "\n");
  RunLogFile(path_, {}, Start::kContinue).write(StepRecord{.step = 4});
  EXPECT_EQ(
      text(),
      to_json(RunHeader{}) + "\n" + to_json(StepRecord{.step = 3}) + "\n" + to_json(StepRecord{.step = 4}) + "\n");
}

TEST_F(RunLogFileTest, NamesAFileThatCannotBeWritten) {
  EXPECT_THROW(RunLogFile("/dev/null/log", {}, Start::kAnew), Error);
  EXPECT_THROW(RunLogFile("/dev/null/log", {}, Start::kContinue), Error);
}

/// Files of this process hold no more than `bytes` while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

TEST_F(RunLogFileTest, StaysWholeWhenThereIsNoRoomForALine) {
  RunLogFile log(path_, {}, Start::kAnew);
  {
    const FileSizeLimit limit(fs::file_size(path_) + 20);
    EXPECT_THROW(log.write(StepRecord{.step = 0}), Error);
  }
  EXPECT_EQ(lines().size(), 1U);
  log.write(StepRecord{.step = 0});
  EXPECT_EQ(lines().size(), 2U);
}

}  // namespace
}  // namespace isochron::io
