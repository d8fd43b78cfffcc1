#include "isochron/io/former_run_file.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/io/run_log_file.h"

namespace isochron::io {
namespace {

class FormerRunFileTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  std::filesystem::path path_ = own_path("former.jsonl");
};

TEST_F(FormerRunFileTest, TheFirstWorkerReadsTheLogForAll) {
  RunHeader header{.program = "train", .policy = "isochron", .global_batch = 50};
  header.workers = {{.id = 0, .name = "fast", .kind = "cpu"}, {.id = 1, .name = "slow", .kind = "cpu"}};
  {
    RunLogFile log(path_, header, RunLogFile::Start::kAnew);
    StepRecord step;
    step.workers = {
        {.id = 0, .batch = 40, .compute_seconds = 0.5},  // 80 samples a second
        {.id = 1, .batch = 10, .compute_seconds = 1.0}};
    log.write(step);
  }
  JobSettings settings;
  settings.start_from = path_.string();
  Introduction first;
  add_former_run(first, settings, /*first=*/true);
  EXPECT_THAT(first.former, testing::ElementsAre(FormerSpeed{"fast", 80.0}, FormerSpeed{"slow", 10.0}));
  EXPECT_EQ(first.trouble, "");
  Introduction second;
  add_former_run(second, settings, /*first=*/false);
  EXPECT_TRUE(second.former.empty());
}

TEST_F(FormerRunFileTest, WhatIsNoLogIsSaidToAll) {
  const auto trouble_of = [](const std::filesystem::path& path) {
    JobSettings settings;
    settings.start_from = path.string();
    Introduction first;
    add_former_run(first, settings, /*first=*/true);
    return first.trouble;
  };
  EXPECT_THAT(trouble_of("/nowhere"), testing::StartsWith("start_from is '/nowhere'; permitted: a run log"));
  EXPECT_THAT(trouble_of(std::filesystem::temp_directory_path()), testing::HasSubstr("it is a folder"));
  std::ofstream(path_) << "no log\n";
  EXPECT_THAT(trouble_of(path_), testing::HasSubstr(":1: "));
}

}  // namespace
}  // namespace isochron::io
