// Runs `isochron profile` and `isochron plan` on what it wrote.
#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/shell_test.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "isochron/io/profile_file.h"
#include "isochron/worker/profile_progress.h"

namespace isochron::worker {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const std::string kSmallProfile =
    "profile --dataset synthetic --model mlp:hidden=16 --train-samples 200 --seconds 0.5 --max-batch 32 ";

class ProfileProgramTest : public ShellTest {
 protected:
  [[nodiscard]] Outcome run(const std::string& words, const std::string& launcher = "") const {
    return shell("OMP_NUM_THREADS=1 timeout 100 " + launcher + "'" ISOCHRON_PROGRAM "' " + words);
  }
};

TEST_F(ProfileProgramTest, MeasuresWhatThePlannerReads) {
  const Outcome outcome = run(kSmallProfile + "-o p.json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("A step of b samples takes about "));
  EXPECT_THAT(outcome.errors, StartsWith("batch 1: "));                       // plain lines where there is no terminal
  EXPECT_EQ(std::ranges::count(outcome.errors, '\n'), 18) << outcome.errors;  // 6 sizes in 3 rounds

  const plan::Profile profile = io::read_profile_file(folder_ / "p.json");
  EXPECT_EQ(profile.model, "mlp:hidden=16");
  EXPECT_EQ(profile.dataset_size, 200);
  EXPECT_EQ(profile.device, "cpu");
  ASSERT_EQ(profile.points.size(), 6U);
  EXPECT_EQ(profile.points.back().batch, 32);
  EXPECT_GE(profile.points.back().readings, 6);
  EXPECT_GT(profile.points.front().bytes, 1e6);
  EXPECT_GT(profile.prepare_seconds, 0.0);
  EXPECT_GT(profile.update_seconds, 0.0);
  EXPECT_GT(profile.copy_seconds, 0.0);
  // 16 hidden units and 10 classes on what the images have.
  EXPECT_GT(profile.parameter_bytes, 4.0 * 16 * 10);

  const Outcome plan = run("plan --cluster hl4 --model-profile p.json --json -");
  ASSERT_EQ(plan.status, 0) << plan.errors;
  EXPECT_GT(json::parse(plan.output)["results"][0]["samples_per_second"], 0.0);
}

TEST_F(ProfileProgramTest, SeveralWorkersMeasureAtOnceAndOneWrites) {
  const Outcome outcome = run(kSmallProfile + "-o p.json --quiet", ISOCHRON_MPIRUN " 2 ");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output + outcome.errors, IsEmpty());
  EXPECT_EQ(io::read_profile_file(folder_ / "p.json").points.size(), 6U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(ProfileProgramTest, SaysWhatIsNotPermitted) {
  const auto expect_refusal = [this](const std::string& words, const std::string& message) {
    SCOPED_TRACE(words);
    expect_refused(run("profile --dataset synthetic " + words), message);
  };
  expect_refusal("", "--output");
  expect_refusal("-o none/p.json", "--output is 'none/p.json'; permitted: a file that can be written");
  expect_refusal("-o p.json --model swift", "model is 'swift'; permitted: ");
  expect_refusal("-o p.json --max-batch 0", "--max-batch is '0'; permitted: a whole number from 1 to ");
  expect_refusal("-o p.json --min-batch 8 --max-batch 4", "--min-batch is 8; permitted: at most --max-batch, 4");
  expect_refusal("-o p.json --seconds 0", "--seconds is 0; permitted: above 0");
  expect_refusal("-o p.json --device moon", "device is 'moon'; permitted: cpu");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST(ProfileProgressTest, ShowsABarOrAPlainLine) {
  EXPECT_EQ(profile_line(64, 0.0123, 0.25, 41.4, 8), "[##......] batch 64: 12.3 ms, 41 s left");
  EXPECT_EQ(profile_line(64, 0.0123, 1.0, 0.0, 0), "batch 64: 12.3 ms, 0 s left");
}

}  // namespace
}  // namespace isochron::worker
