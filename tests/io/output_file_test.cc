#include "isochron/io/output_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/own_path.h"
#include <gtest/gtest.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::io {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string content(const fs::path& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  const fs::path folder_ = own_path();
};

TEST_F(OutputFileTest, AppearsOnlyWhenCommitted) {
  OutputFile file(folder_ / "a.json");
  file.stream() << "whole";
  EXPECT_FALSE(fs::exists(folder_ / "a.json"));
  file.commit();
  EXPECT_EQ(content(folder_ / "a.json"), "whole");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFileTest, LeavesTheOldFileAloneWhenGivenUp) {
  std::ofstream(folder_ / "a.json") << "old";
  {
    OutputFile file(folder_ / "a.json");
    file.stream() << "new";
  }
  EXPECT_EQ(content(folder_ / "a.json"), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFileTest, WritesThroughALink) {
  std::ofstream(folder_ / "real") << "old";
  fs::create_symlink(folder_ / "real", folder_ / "link");
  OutputFile file(folder_ / "link");
  file.stream() << "new";
  file.commit();
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(content(folder_ / "real"), "new");
}

TEST_F(OutputFileTest, DoesNotFollowALinkInThePlaceOfItsTemporaryFile) {
  std::ofstream(folder_ / "victim") << "mine";
  const fs::path temporary = folder_ / (".a.json." + std::to_string(::getpid()) + ".tmp");
  fs::create_symlink(folder_ / "victim", temporary);
  EXPECT_THROW(OutputFile(folder_ / "a.json"), Error);
  EXPECT_EQ(content(folder_ / "victim"), "mine");
}

TEST_F(OutputFileTest, TakesThePlaceOfATemporaryFileThatNobodyWrites) {
  std::ofstream(folder_ / (".a.json." + std::to_string(::getpid()) + ".tmp")) << "left by one of the same number";
  OutputFile file(folder_ / "a.json");
  file.stream() << "new";
  EXPECT_THROW(OutputFile(folder_ / "a.json"), Error);  // but not of one that is being written
  file.commit();
  EXPECT_EQ(content(folder_ / "a.json"), "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFileTest, RefusesWhatCannotBeWrittenAtOnce) {
  EXPECT_THROW(OutputFile(folder_ / "none" / "a.json"), Error);
  EXPECT_THROW(OutputFile{folder_}, Error);
}

TEST_F(OutputFileTest, WritesDevicesDirectlyAndReportsAFullOne) {
  OutputFile null("/dev/null");
  null.stream() << "x";
  null.commit();
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  if (fs::exists("/dev/full")) {
    OutputFile full("/dev/full");
    full.stream() << "x";
    EXPECT_THROW(full.commit(), Error);
  }
}

}  // namespace
}  // namespace isochron::io
