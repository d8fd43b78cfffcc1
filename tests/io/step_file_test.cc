#include "isochron/io/step_file.h"

#include <filesystem>
#include <fstream>

#include "tests/own_path.h"
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "isochron/core/error.h"

namespace isochron::io {
namespace {

class StepFileTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  const std::filesystem::path path_ = own_path();
};

TEST_F(StepFileTest, ShowsWhatAnotherProcessPublished) {
  const StepFile file = StepFile::create(path_);
  EXPECT_EQ(file.step(), StepFile::kNotStarted);
  const pid_t child = fork();
  if (child == 0) {
    StepFile::open(path_).publish(41);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(file.step(), 41);
}

TEST_F(StepFileTest, GoesBackAndOutlivesItsName) {
  StepFile file = StepFile::create(path_);
  StepFile other = StepFile::open(path_);
  std::filesystem::remove(path_);
  other.publish(7);
  other.publish(3);
  EXPECT_EQ(StepFile(std::move(file)).step(), 3);
}

TEST_F(StepFileTest, RefusesWhatIsNotAStepFile) {
  EXPECT_THROW(StepFile::open(path_), Error);
  std::ofstream(path_) << "text";
  EXPECT_THROW(StepFile::open(path_), Error);
  EXPECT_THROW(StepFile::create(path_), Error) << "it would change another's file";
}

}  // namespace
}  // namespace isochron::io
