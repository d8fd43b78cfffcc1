#include "isochron/io/run_log_follower.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::io {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class RunLogFollowerTest : public testing::Test {
 protected:
  void SetUp() override { append(""); }
  void TearDown() override { std::filesystem::remove(path_); }

  void append(const std::string& text) const { std::ofstream(path_, std::ios::binary | std::ios::app) << text; }
  static std::string header() { return to_json(RunHeader{.program = "train"}) + "\n"; }
  static std::string step(std::int64_t number) { return to_json(StepRecord{.step = number}) + "\n"; }

  const std::filesystem::path path_ = own_path(".jsonl");
};

TEST_F(RunLogFollowerTest, HandsOutWhatCameSinceTheLastCall) {
  RunLogFollower follower(path_);
  std::vector<std::int64_t> steps;
  const auto take = [&](RunLogLine&& line) {
    if (const auto* const record = std::get_if<StepRecord>(&line)) {
      steps.push_back(record->step);
    }
  };
  EXPECT_EQ(follower.poll(take), 0U);
  append(header() + step(0) + step(1).substr(0, 20));
  EXPECT_EQ(follower.poll(take), 2U);
  EXPECT_EQ(follower.poll(take), 0U);
  append(step(1).substr(20) + step(2));
  EXPECT_EQ(follower.poll(take), 2U);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 1, 2}));
}

TEST_F(RunLogFollowerTest, ReadsLinesLongerThanABlock) {
  StepRecord big{.step = 7};
  big.workers.resize(60000);  // well over a mebibyte of text
  append(header() + to_json(big) + "\n" + step(8));
  RunLogFollower follower(path_);
  std::size_t workers = 0;
  EXPECT_EQ(
      follower.poll([&](RunLogLine&& line) {
        if (const auto* const record = std::get_if<StepRecord>(&line)) {
          workers += record->workers.size();
        }
      }),
      3U);
  EXPECT_EQ(workers, 60000U);
}

TEST_F(RunLogFollowerTest, NamesTheLineThatIsWrong) {
  const auto refusal = [&](const std::string& text) -> std::string {
    std::ofstream(path_, std::ios::binary) << text;
    try {
      RunLogFollower(path_).poll([](RunLogLine&&) {});
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal(header() + step(0) + "nonsense\n"), path_.string() + ":3: the line is not JSON");
  EXPECT_THAT(refusal(step(0)), StartsWith(path_.string() + ":1: the first line is no header"));
  EXPECT_THAT(refusal(header() + header()), HasSubstr(":2: a second header"));
  EXPECT_THAT(
      refusal(header() + std::string((std::size_t{8} << 20U) + 1, 'x')), HasSubstr(":2: the line has more than"));
}

TEST_F(RunLogFollowerTest, TellsThatAnotherRunTookTheFile) {
  append(header() + step(0));
  RunLogFollower follower(path_);
  EXPECT_EQ(follower.poll([](RunLogLine&&) {}), 2U);
  std::ofstream(path_, std::ios::trunc) << "";
  EXPECT_THROW(follower.poll([](RunLogLine&&) {}), Error);
}

TEST_F(RunLogFollowerTest, RefusesWhatCannotBeRead) {
  EXPECT_THROW(RunLogFollower("/nowhere/run.jsonl"), std::invalid_argument);
  EXPECT_THROW(RunLogFollower("/"), std::invalid_argument);
}

}  // namespace
}  // namespace isochron::io
