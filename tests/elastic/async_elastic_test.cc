// Real asynchronous jobs under mpirun whose workers and servers are killed and stopped. Whoever is left must use every
// sample of every epoch once, apply every update that was sent, and end with the same parameters.
// tests/elastic/async_worker.cc says what can be done to a worker.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/shell_test.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::HasSubstr;

// What a worker held in the end.
struct End {
  int ranks = 0;
  bool complete = false;
  std::int64_t sent = 0;
  std::int64_t applied = -1;
  std::string digest;
  std::vector<std::int64_t> used;  // by epoch
  std::string events;
};

End read_end(const fs::path& path) {
  End end;
  std::ifstream file(path);
  std::string label;
  file >> label >> end.ranks >> label >> end.complete >> label >> end.sent >> label >> end.applied >> label >>
      end.digest >> label;
  for (std::string word; file >> word && word != "events";) {
    end.used.push_back(std::stoll(word));
  }
  std::getline(file, end.events);
  return end;
}

class AsyncElasticTest : public ShellTest {
 protected:
  struct Result {
    Outcome outcome;
    std::vector<End> ends;
  };

  // mpirun's own status says nothing about lost ranks.
  [[nodiscard]] Result run(int ranks, const std::string& words) const {
    static int runs = 0;
    const fs::path folder = folder_ / std::to_string(runs++);
    fs::create_directories(folder);
    Result result{
        .outcome = shell(
            "timeout -s KILL 100 " ISOCHRON_MPIRUN " " + std::to_string(ranks) + " " ISOCHRON_BIN "/async_worker " +
            folder.string() + " " + words)};
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().filename() != "struck") {  // when a worker died
        result.ends.push_back(read_end(entry.path()));
      }
    }
    return result;
  }

  std::vector<End> expect_survived(int ranks, int left, const std::string& words) const {
    SCOPED_TRACE(words);
    const Result result = run(ranks, words);
    EXPECT_EQ(result.ends.size(), static_cast<std::size_t>(left)) << result.outcome.errors;
    for (const End& end : result.ends) {
      EXPECT_EQ(end.ranks, left);
      EXPECT_TRUE(end.complete);
      EXPECT_EQ(end.sent, end.applied);
      EXPECT_EQ(end.digest, result.ends.front().digest);
      EXPECT_THAT(end.used, testing::AllOf(testing::SizeIs(3), Each(600)));
      EXPECT_THAT(end.events, HasSubstr("death"));
    }
    return result.ends;
  }
};

TEST_F(AsyncElasticTest, AnUndisturbedRunUsesEverySampleOnce) {
  const Result result = run(3, "");
  EXPECT_EQ(result.outcome.status, 0) << result.outcome.errors;
  ASSERT_EQ(result.ends.size(), 3U);
  for (const End& end : result.ends) {
    EXPECT_TRUE(end.complete);
    EXPECT_GT(end.sent, 0);
    EXPECT_EQ(end.sent, end.applied);
    EXPECT_THAT(end.used, Each(600));
  }
}

TEST_F(AsyncElasticTest, AWorkersDeathGivesItsSamplesToTheOthers) {
  expect_survived(4, 3, "servers=1 1:4:forward");
  expect_survived(4, 3, "sync=ssp servers=1 2:4:push:300");
}

TEST_F(AsyncElasticTest, AShareOfTheParametersMayBeLostWithAWorker) {
  expect_survived(4, 3, "3:5:forward");
  expect_survived(4, 3, "2:3:push:150");
}

TEST_F(AsyncElasticTest, TheCoordinatorMayBeLostToo) {
  expect_survived(4, 3, "0:4:forward");
  expect_survived(4, 3, "sync=ssp 0:3:push:500");
}

TEST_F(AsyncElasticTest, ADedicatedServersShareGoesToTheOthers) {
  expect_survived(5, 4, "servers=2 3:1:serve:2000");
  // The last one: the workers hold the parameters from then on.
  expect_survived(4, 3, "servers=1 3:1:serve:2000");
}

TEST_F(AsyncElasticTest, SurvivesADeathAtABarrier) {
  expect_survived(4, 3, "1:0:barrier");
}

TEST_F(AsyncElasticTest, SurvivesTwoDeaths) {
  expect_survived(5, 3, "1:3:forward 4:6:push:200");
}

TEST_F(AsyncElasticTest, AStoppedWorkerIsEvicted) {
  expect_survived(3, 2, "timeout=3000 signal=19 2:3:forward");
}

TEST_F(AsyncElasticTest, WithBoundZeroARoundIsDoneAgainWithoutTheLostWorker) {
  const Result undisturbed = run(4, "sync=ssp staleness=0 servers=1");
  ASSERT_EQ(undisturbed.ends.size(), 4U) << undisturbed.outcome.errors;
  for (const std::string fault : {"1:4:forward", "2:4:push:200", "0:7:push:400", "1:0:barrier", "2:5:free:50"}) {
    const std::vector<End> ends = expect_survived(4, 3, "sync=ssp staleness=0 servers=1 " + fault);
    ASSERT_FALSE(ends.empty());
    // The same gradients for the same parameters, whoever computed them.
    EXPECT_NEAR(std::stod(ends.front().digest), std::stod(undisturbed.ends.front().digest), 1e-5);
  }
}

TEST_F(AsyncElasticTest, WithBoundZeroAShareOfTheParametersMayBeLostToo) {
  expect_survived(4, 3, "sync=ssp staleness=0 3:5:forward");
  expect_survived(4, 3, "sync=ssp staleness=0 0:4:push:300");
  expect_survived(5, 3, "sync=ssp staleness=0 0:3:push:150 2:5:free:100");
}

}  // namespace
}  // namespace isochron
