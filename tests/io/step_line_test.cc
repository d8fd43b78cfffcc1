// The quick way and the parser must agree wherever the quick way answers.
#include "isochron/io/step_line.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "isochron/core/random/random.h"
#include "isochron/core/trace/chain.h"
#include "isochron/io/run_log_reader.h"

namespace isochron::io {
namespace {

StepRecord step_of_a_line() {
  return {
      .step = 41,
      .epoch = 2,
      .position = 5120,
      .start_seconds = 0.1 + 0.2,
      .seconds = 1.0 / 3.0,
      .workers =
          {{.id = 0, .batch = 100, .start_seconds = 0.3, .compute_seconds = 0.25, .wait_seconds = 1e-9},
           {.id = std::numeric_limits<WorkerId>::max(), .batch = 28, .compute_seconds = 5e-324}},
      .learning_rate_factor = 0.5,
      .changed = true,
      .reason = Reason::kRebalanced,
      .words = "speeds: 1.5 & 2",
      .loss = 2.302585};
}

TEST(StepLineTest, ReadsWhatWasWritten) {
  std::int64_t staleness = 7;
  StepRecord copy;
  ASSERT_TRUE(read_step_line(to_json(step_of_a_line()), copy, staleness));
  EXPECT_EQ(copy, step_of_a_line());
  EXPECT_EQ(staleness, -1);
  ASSERT_TRUE(read_step_line(to_json(UpdateRecord{.worker = {.id = 5}, .staleness = 3}), copy, staleness));
  EXPECT_EQ(copy.workers.at(0).id, 5U);
  EXPECT_EQ(staleness, 3);
  StepRecord bare{.step = 0, .workers = {{.id = 1, .batch = 0}}};
  bare.seconds = std::numeric_limits<double>::infinity();  // written as null
  ASSERT_TRUE(read_step_line(to_json(bare), copy, staleness));
  EXPECT_TRUE(std::isnan(copy.seconds));
  EXPECT_TRUE(std::isnan(copy.loss));
  EXPECT_EQ(copy.epoch, -1);
}

TEST(StepLineTest, ReadsLinesWithTheirLink) {
  StepRecord copy;
  std::int64_t staleness = -1;
  ASSERT_TRUE(read_step_line(with_link(to_json(step_of_a_line()), 0x1234), copy, staleness));
  EXPECT_EQ(copy, step_of_a_line());
}

TEST(StepLineTest, ReadsNumbersOfEverySize) {
  Random random{1};
  for (int i = 0; i < 2000; ++i) {
    StepRecord step = step_of_a_line();
    for (WorkerStep& worker : step.workers) {
      const double exponent = 300.0 * (2.0 * random.uniform() - 1.0);
      worker.compute_seconds = random.uniform() * std::pow(10.0, exponent);
      worker.wait_seconds = -worker.compute_seconds;
    }
    StepRecord copy;
    std::int64_t staleness = -1;
    ASSERT_TRUE(read_step_line(to_json(step), copy, staleness)) << to_json(step);
    EXPECT_EQ(copy, step);
  }
}

TEST(StepLineTest, LeavesEverythingElseToTheParser) {
  const std::string line = to_json(step_of_a_line());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = line;
    return changed.replace(changed.find(from), from.size(), to);
  };
  StepRecord ignored;
  std::int64_t staleness = -1;
  EXPECT_FALSE(read_step_line("", ignored, staleness));
  EXPECT_FALSE(read_step_line(line.substr(0, line.size() - 1), ignored, staleness));
  EXPECT_FALSE(read_step_line(line + " ", ignored, staleness));
  EXPECT_FALSE(read_step_line(with("\"step\":41", "\"step\": 41"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("\"step\":41", "\"step\":041"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("\"step\":41", "\"step\":-1"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("\"step\":41", "\"step\":9007199254740993"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("0.25", "0."), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("0.25", "inf"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("0.25", "nan"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("0.25", "1e999"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("0.25", "+1"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("[100,28]", "[100]"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("[100,28]", "[100,28,1]"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("rebalanced", "no-reason"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("speeds", "sp\\u0065eds"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("speeds", "spëeds"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("\"changed\":true", "\"changed\":1"), ignored, staleness));
  EXPECT_FALSE(read_step_line(with("{\"type\"", "{\"new\":1,\"type\""), ignored, staleness));
}

TEST(StepLineTest, AgreesWithTheParserWhateverIsCutOrChanged) {
  const std::string line = to_json(step_of_a_line());
  for (std::size_t i = 0; i < line.size(); ++i) {
    for (const char c : {'0', '"', ',', 'x', '-'}) {
      std::string changed = line;
      changed[i] = c;
      StepRecord quick;
      std::int64_t staleness = -1;
      if (!read_step_line(changed, quick, staleness)) {
        continue;
      }
      // A blank inside the object is nothing to the parser, and keeps the quick way out.
      const auto slow = std::get<StepRecord>(parse_run_log_line("{ " + changed.substr(1)));
      EXPECT_EQ(to_json(slow), to_json(quick)) << changed;
    }
  }
}

}  // namespace
}  // namespace isochron::io
