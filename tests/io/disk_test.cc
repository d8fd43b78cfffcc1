// A disk that is full, that is read-only, and writers that are killed: what was there before is intact.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "tests/failure.h"
#include "tests/own_path.h"
#include "tests/small_disk.h"
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "isochron/io/checkpoint_file.h"
#include "isochron/io/output_file.h"
#include "isochron/io/run_log_file.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::io {
namespace {

namespace fs = std::filesystem;

void write_checkpoint(const fs::path& path, const std::string& text) {
  const PartLayout layout{.type = "text", .sizes = {std::ssize(text)}};
  write_checkpoint_file(path, {{"part", {.layout = layout, .bytes = std::as_bytes(std::span(text))}}});
}

/// The content, its checksum verified.
std::string read_checkpoint(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  CheckpointReader reader(stream, path.string());
  std::string text(reader.parts().at(0).bytes, '\0');
  reader.read(reader.parts().at(0), std::as_writable_bytes(std::span(text)));
  return text;
}

/// Steps of a log whose chain holds.
std::int64_t steps_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  RunLogReader reader(stream, path.string());
  std::int64_t count = -1;  // the header is none
  while (reader.next()) {
    ++count;
  }
  EXPECT_EQ(reader.broken_line(), 0);
  EXPECT_FALSE(reader.cut_off());
  return count;
}

std::ptrdiff_t files_in(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

constexpr std::size_t kDiskBytes = 64 << 10U;

TEST(DiskTest, AFullDiskLeavesThePreviousCheckpoint) {
  const SmallDisk disk(kDiskBytes);
  if (!disk.why_not().empty()) {
    GTEST_SKIP() << disk.why_not();
  }
  const fs::path path = disk.path() / "a.ckpt";
  write_checkpoint(path, "before");
  const std::string large(2 * kDiskBytes, 'x');
  const std::string expected = "cannot write " + path.string() + ": No space left on device";
  EXPECT_EQ(failure([&] { write_checkpoint(path, large); }), expected);
  EXPECT_EQ(read_checkpoint(path), "before");
  EXPECT_EQ(files_in(disk.path()), 1);  // and the space is free again
  write_checkpoint(path, large.substr(0, kDiskBytes / 2));
  EXPECT_EQ(read_checkpoint(path).size(), kDiskBytes / 2);
}

TEST(DiskTest, AFullDiskLeavesARunLogThatCanGoOn) {
  const SmallDisk disk(kDiskBytes);
  if (!disk.why_not().empty()) {
    GTEST_SKIP() << disk.why_not();
  }
  const fs::path path = disk.path() / "run.jsonl";
  std::ofstream(disk.path() / "ballast") << std::string(kDiskBytes / 2, 'x');
  RunLogFile log(path, {}, RunLogFile::Start::kAnew);
  std::int64_t step = 0;
  const std::string words = failure([&] {
    for (; step < 10'000; ++step) {
      log.write(StepRecord{.step = step});
    }
  });
  EXPECT_EQ(words, "cannot write run log " + path.string() + ": No space left on device");
  EXPECT_EQ(steps_of(path), step);
  fs::remove(disk.path() / "ballast");
  log.write(StepRecord{.step = step});
  EXPECT_EQ(steps_of(path), step + 1);
}

TEST(DiskTest, AReadOnlyDiskRefusesAtOnceAndNamesTheFile) {
  const SmallDisk disk(kDiskBytes);
  if (!disk.why_not().empty()) {
    GTEST_SKIP() << disk.why_not();
  }
  const fs::path checkpoint = disk.path() / "a.ckpt";
  const fs::path log = disk.path() / "run.jsonl";
  write_checkpoint(checkpoint, "before");
  RunLogFile(log, {}, RunLogFile::Start::kAnew).write(StepRecord{.step = 0});
  ASSERT_TRUE(disk.make_read_only());
  const auto refused = [](const fs::path& path) { return "cannot write " + path.string() + ": Read-only file system"; };
  EXPECT_EQ(failure([&] { write_checkpoint(checkpoint, "after"); }), refused(checkpoint));
  EXPECT_EQ(failure([&] { OutputFile(disk.path() / "new.json"); }), refused(disk.path() / "new.json"));
  for (const auto start : {RunLogFile::Start::kAnew, RunLogFile::Start::kContinue}) {
    EXPECT_EQ(
        failure([&] { RunLogFile(log, {}, start); }),
        "cannot write run log " + log.string() + ": Read-only file system");
  }
  EXPECT_EQ(read_checkpoint(checkpoint), "before");
  EXPECT_EQ(steps_of(log), 1);
}

/// Begins to write `path` in another process, which is killed; returns when it is gone.
void write_and_be_killed(const fs::path& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    OutputFile file(path);
    file.stream() << "half" << std::flush;
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

class KilledWriterTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  const fs::path folder_ = own_path();
};

TEST_F(KilledWriterTest, LeavesThePreviousFileAndATemporaryOneThatCanBeFound) {
  write_checkpoint(folder_ / "step-1.ckpt", "before");
  write_and_be_killed(folder_ / "step-1.ckpt");
  EXPECT_EQ(read_checkpoint(folder_ / "step-1.ckpt"), "before");
  ASSERT_EQ(files_in(folder_), 2);
  EXPECT_EQ(remove_abandoned_outputs(folder_, "other-"), 0U);
  EXPECT_EQ(remove_abandoned_outputs(folder_, "step-"), 1U);
  EXPECT_EQ(files_in(folder_), 1);
  EXPECT_EQ(read_checkpoint(folder_ / "step-1.ckpt"), "before");
}

TEST_F(KilledWriterTest, IsToldFromOneThatLives) {
  std::optional<OutputFile> file(folder_ / "step-2.ckpt");
  file->stream() << "whole";
  EXPECT_EQ(remove_abandoned_outputs(folder_, "step-"), 0U);
  file->commit();
  EXPECT_EQ(remove_abandoned_outputs(folder_, "step-"), 0U);
  EXPECT_EQ(fs::file_size(folder_ / "step-2.ckpt"), 5U);
  EXPECT_EQ(remove_abandoned_outputs(folder_ / "none", "step-"), 0U);
}

TEST_F(KilledWriterTest, LeavesARunLogThatCanGoOn) {
  const fs::path path = folder_ / "run.jsonl";
  const pid_t child = ::fork();
  if (child == 0) {
    RunLogFile log(path, {}, RunLogFile::Start::kAnew);
    log.write(StepRecord{.step = 0});
    ::raise(SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  RunLogFile log(path, {}, RunLogFile::Start::kContinue);
  EXPECT_EQ(log.next_step(), 1);
  log.write(StepRecord{.step = 1});
  EXPECT_EQ(steps_of(path), 2);
}

}  // namespace
}  // namespace isochron::io
