// Real jobs under mpirun whose workers are killed, stopped, starved and joined by others: they must end with the result
// of an undisturbed run. tests/elastic/elastic_worker.cc says what can be done to a worker.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/elastic/chaos.h"
#include "tests/shell_test.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Step {
  std::string digest;
  double loss = 0.0;
  int workers = 0;
};

// What one worker wrote down.
struct Diary {
  std::map<std::int64_t, Step> steps;
  std::vector<std::string> events;  // "3 death 2 node7-2"
  std::vector<std::string> warnings;
  std::vector<std::string> sums;
  std::vector<std::string> ledgers;  // at the end of every epoch: "complete", "incomplete"
  std::string end;                   // "20 workers 3"; empty: it did not reach the end
};

Diary read_diary(const fs::path& path) {
  Diary diary;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    std::string rest = line.size() > kind.size() ? line.substr(kind.size() + 1) : "";
    if (kind == "step") {
      std::int64_t number = 0;
      std::string label;
      Step step;
      std::string loss;  // a stream reads no nan
      words >> number >> label >> step.digest >> label >> loss >> label >> step.workers;
      step.loss = std::strtod(loss.c_str(), nullptr);
      diary.steps[number] = step;
    } else if (kind == "event") {
      diary.events.push_back(rest);
    } else if (kind == "warning") {
      diary.warnings.push_back(rest);
    } else if (kind == "sum") {
      diary.sums.push_back(rest);
    } else if (kind == "ledger") {
      diary.ledgers.push_back(rest);
    } else if (kind == "end") {
      diary.end = rest;
    }
  }
  return diary;
}

class ElasticTest : public ShellTest {
 protected:
  struct Result {
    Outcome outcome;
    std::vector<Diary> finished;  // of those who reached the end
    std::vector<Diary> all;
  };

  // mpirun's own status says nothing about lost ranks.
  [[nodiscard]] Result run(int ranks, const std::string& words) const {
    static int runs = 0;
    const fs::path folder = folder_ / std::to_string(runs++);
    fs::create_directories(folder);
    const std::string worker = ISOCHRON_BIN "/elastic_worker " + folder.string();
    Result result{
        .outcome = shell(
            ISOCHRON_SOURCE_DIR "/tests/elastic/outlived.sh " + worker + " " ISOCHRON_MPIRUN " " +
            std::to_string(ranks) + " " + worker + " " + words)};
    constexpr int kTimedOut = 124;
    EXPECT_NE(result.outcome.status, kTimedOut) << "the workers did not end by themselves";
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".log") {
        result.all.push_back(read_diary(entry.path()));
        if (!result.all.back().end.empty()) {
          result.finished.push_back(result.all.back());
        }
      }
    }
    return result;
  }

  // At every step all who took it hold the same, bit by bit.
  static void expect_agreement(const std::vector<Diary>& diaries) {
    std::map<std::int64_t, std::set<std::string>> digests;
    for (const Diary& diary : diaries) {
      for (const auto& [number, step] : diary.steps) {
        digests[number].insert(step.digest);
      }
    }
    for (const auto& [number, found] : digests) {
      EXPECT_EQ(found.size(), 1U) << "step " << number;
    }
  }

  static const Diary& any(const std::vector<Diary>& diaries) {
    return *std::ranges::max_element(diaries, {}, [](const Diary& diary) { return diary.steps.size(); });
  }

  // The same samples in the same order give the same losses, whoever computed them.
  static void expect_same_training(const Result& result, const Result& undisturbed, double tolerance = 1e-3) {
    ASSERT_FALSE(result.finished.empty()) << result.outcome.errors;
    ASSERT_FALSE(undisturbed.finished.empty()) << undisturbed.outcome.errors;
    std::map<std::int64_t, double> losses;
    for (const Diary& diary : result.all) {
      for (const auto& [number, step] : diary.steps) {
        if (std::isfinite(step.loss)) {  // else its reports are lost, and it counts without them
          losses[number] = step.loss;
        }
      }
    }
    for (const auto& [number, step] : any(undisturbed.finished).steps) {
      if (losses.contains(number)) {
        EXPECT_NEAR(losses[number], step.loss, tolerance) << "step " << number;
      }
    }
    EXPECT_TRUE(losses.contains(any(undisturbed.finished).steps.rbegin()->first)) << "the last step is missing";
    expect_agreement(result.all);
  }
};

TEST_F(ElasticTest, AnUndisturbedRunIsTheReference) {
  const Result result = run(3, "steps=6");
  EXPECT_EQ(result.outcome.status, 0) << result.outcome.errors;
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  EXPECT_EQ(result.finished[0].end, "7 workers 3");
  expect_agreement(result.finished);
}

// Wherever a worker dies, the others go on with the same samples.
TEST_F(ElasticTest, SurvivesADeathAtAnyPointOfAStep) {
  const Result undisturbed = run(4, "steps=12 evaluate=2 save=3");
  for (const std::string fault :
       {"5:2:forward",
        "5:2:reduce:0",
        "5:2:reduce:300",
        "5:2:reduce:1500",
        "5:2:before-optimizer",
        "5:2:optimizer:20",
        "5:2:after-optimizer",
        "6:2:evaluate",
        "6:2:evaluate-soon:100",
        "6:0:save:0",
        "6:0:save:300",
        "5:0:forward",
        "5:0:after-optimizer"}) {
    SCOPED_TRACE(fault);
    const Result result = run(4, "steps=12 evaluate=2 save=3 " + fault);
    ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
    expect_same_training(result, undisturbed);
    for (const Diary& diary : result.finished) {
      EXPECT_EQ(diary.end, "13 workers 3");
      EXPECT_THAT(diary.events, Contains(HasSubstr("death")));
    }
  }
}

// With two optimizers a step has happened for both or for none, on all workers.
TEST_F(ElasticTest, NoStepOfTwoOptimizersIsTakenByHalf) {
  const Result undisturbed = run(3, "steps=10 networks=2");
  ASSERT_EQ(undisturbed.finished.size(), 3U) << undisturbed.outcome.errors;
  for (const std::string fault :
       {"5:2:reduce:0",
        "5:2:between-passes",
        "5:0:between-passes",
        "5:2:second-reduce:0",
        "5:2:second-reduce:500",
        "5:1:before-optimizer",
        "5:1:after-optimizer",
        "5:1:memory-between"}) {
    SCOPED_TRACE(fault);
    const Result result = run(3, "steps=10 networks=2 " + fault);
    ASSERT_EQ(result.finished.size(), fault.ends_with("memory-between") ? 3U : 2U) << result.outcome.errors;
    expect_same_training(result, undisturbed, 1e-4);
    for (const Diary& diary : result.finished) {
      EXPECT_THAT(diary.events, Contains(AnyOf(HasSubstr("death"), HasSubstr("memory"))));
    }
  }
}

// What a lost worker owed is lost with it, which is less than the rounding of a step; the others hold the same bits.
TEST_F(ElasticTest, WithInt8TheOthersGoOnFromADeathAtAnyPointOfAStep) {
  const std::string common = "steps=12 evaluate=2 save=3 compression=int8 ";
  const Result undisturbed = run(4, common);
  for (const std::string fault :
       {"5:2:forward",
        "5:2:reduce:0",
        "5:2:reduce:500",
        "5:2:reduce:2000",
        "5:2:before-optimizer",
        "5:0:after-optimizer",
        "6:0:save:300",
        "4:1:memory policy=uniform"}) {
    SCOPED_TRACE(fault);
    const Result result = run(4, common + fault);
    ASSERT_EQ(result.finished.size(), fault.find("memory") == std::string::npos ? 3U : 4U) << result.outcome.errors;
    expect_same_training(result, undisturbed, 0.02);
  }
}

TEST_F(ElasticTest, WithInt8ANewWorkerTakesThePlaceOfOneThatDied) {
  const Result undisturbed = run(3, "steps=60 compression=int8");
  const Result result = run(3, "steps=60 compression=int8 pace=50 await=3 2:1:forward 4:first:join");
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  for (const Diary& diary : result.finished) {
    EXPECT_EQ(diary.end, "61 workers 3");
  }
  expect_same_training(result, undisturbed, 0.02);
}

TEST_F(ElasticTest, ANewWorkerHasTheStateOfAllOptimizers) {
  const Result undisturbed = run(2, "steps=60 networks=2");
  const Result result = run(2, "steps=60 networks=2 pace=50 await=3 3:first:join");
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  expect_same_training(result, undisturbed);
}

TEST_F(ElasticTest, GoesDownToOneWorker) {
  const Result undisturbed = run(3, "steps=12");
  const Result result = run(3, "steps=12 3:0:forward 7:2:after-optimizer");
  ASSERT_EQ(result.finished.size(), 1U) << result.outcome.errors;
  EXPECT_EQ(result.finished[0].end, "13 workers 1");
  expect_same_training(result, undisturbed);
}

TEST_F(ElasticTest, SurvivesADeathInTheRecoveryFromAnother) {
  const Result undisturbed = run(4, "steps=12 pace=10");
  for (const std::string later : {"0", "2000", "8000", "20000", "40000"}) {
    SCOPED_TRACE(later);
    // Both begin to count at the same barrier of the step.
    const Result result = run(4, "steps=12 pace=10 5:3:reduce:0 5:1:reduce:" + later);
    ASSERT_EQ(result.finished.size(), 2U) << result.outcome.errors;
    expect_same_training(result, undisturbed);
  }
}

TEST_F(ElasticTest, TakesInANewWorkerWhileTheOthersTrain) {
  const Result undisturbed = run(2, "steps=60");
  const Result result = run(2, "steps=60 pace=50 await=3 3:first:join");
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  for (const Diary& diary : result.finished) {
    EXPECT_EQ(diary.end, "61 workers 3");
    EXPECT_THAT(diary.events, Contains(AllOf(HasSubstr("join 2"), HasSubstr("joined-at-3"))));
  }
  expect_same_training(result, undisturbed);
}

TEST_F(ElasticTest, ANewWorkerTakesThePlaceOfOneThatDied) {
  const Result undisturbed = run(3, "steps=60");
  const Result result = run(3, "steps=60 pace=50 await=3 2:1:forward 4:first:join");
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  for (const Diary& diary : result.finished) {
    EXPECT_EQ(diary.end, "61 workers 3");
  }
  expect_same_training(result, undisturbed);
}

TEST_F(ElasticTest, NamesAStoppedWorkerAndThenGoesOnWithoutIt) {
  const Result undisturbed = run(3, "steps=12");
  const Result result = run(3, "steps=12 timeout=2500 5:1:stop");
  ASSERT_EQ(result.finished.size(), 2U) << result.outcome.errors;
  expect_same_training(result, undisturbed);
  for (const Diary& diary : result.finished) {
    EXPECT_THAT(diary.warnings, Contains(AllOf(HasSubstr("rank 1 on "), HasSubstr("has kept the others waiting for"))));
  }
  EXPECT_TRUE(std::ranges::any_of(result.finished, [](const Diary& diary) {
    return std::ranges::any_of(diary.events, [](const std::string& event) {
      return event.starts_with("5 evicted 1 ") && event.ends_with("-1");
    });
  }));
}

TEST_F(ElasticTest, ALackOfMemoryLowersTheCeilingOfThatWorkerOnly) {
  const Result undisturbed = run(3, "steps=12");
  const Result result = run(3, "steps=12 policy=uniform 4:1:memory");
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  expect_same_training(result, undisturbed);
  for (const Diary& diary : result.finished) {
    EXPECT_THAT(diary.events, Contains(HasSubstr("4 out-of-memory 1")));
    EXPECT_THAT(diary.events, Each(Not(HasSubstr("death"))));
  }
}

// Its share of 16 samples at 8 MiB each would take 128 MiB, and the kernel gives it 64: enough for a recovery, not for
// the batch.
TEST_F(ElasticTest, AMemoryLimitOfTheSystemLowersTheCeilingOfThatWorkerOnly) {
  const Result undisturbed = run(3, "steps=12");
  const Result result = run(3, "steps=12 appetite=8 policy=uniform 4:1:limit:64");
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  expect_same_training(result, undisturbed);
  for (const Diary& diary : result.finished) {
    EXPECT_THAT(diary.events, Contains(HasSubstr("4 out-of-memory 1")));
    EXPECT_THAT(diary.events, Each(HasSubstr("out-of-memory 1")));
  }
}

// Every worker's memory holds 10 samples, so that no split of 48 fits: they compute in pieces.
TEST_F(ElasticTest, ComputesInMicroBatchesWhatNoSplitCanHold) {
  const Result undisturbed = run(3, "steps=8 model=plain");
  const Result result = run(3, "steps=8 model=plain memory=10");
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  expect_same_training(result, undisturbed);
  for (const Diary& diary : result.finished) {
    EXPECT_THAT(diary.warnings, Contains(HasSubstr("in micro-batches of")));
  }
}

// What is left of the workers once ran out of memory with a part of what it has to hold now. It may have been a passing
// lack, and not to try would be the end.
TEST_F(ElasticTest, AnOldLackOfMemoryDoesNotEndTheJob) {
  const Result undisturbed = run(3, "steps=12");
  const Result result = run(3, "steps=12 4:0:memory 6:1:forward 8:2:forward");
  ASSERT_EQ(result.finished.size(), 1U) << result.outcome.errors;
  expect_same_training(result, undisturbed);
}

// BatchNorm needs the whole batch, so there is no way.
TEST_F(ElasticTest, SaysWhenMemoryCannotHoldTheGlobalBatch) {
  const Result result = run(3, "steps=8 memory=10");
  EXPECT_TRUE(result.finished.empty());
  EXPECT_THAT(result.outcome.errors, HasSubstr("cannot take the global batch"));
}

TEST_F(ElasticTest, NonFiniteGradientsStopTheJobAndNameTheWorker) {
  // In a synchronised BatchNorm a gradient that is no number reaches everybody; without one it can be told whose it
  // was.
  for (const std::string fault : {"4:1:always-nan", "4:1:always-nan model=plain", "4:1:nan-gradient model=plain"}) {
    SCOPED_TRACE(fault);
    const Result result = run(3, "steps=8 " + fault);
    EXPECT_TRUE(result.finished.empty());
    EXPECT_THAT(result.outcome.errors, ContainsRegex("step 4: the gradient is not finite on [^ ]+-1 [(]rank 1"));
  }
}

TEST_F(ElasticTest, NonFiniteGradientsCanBeSkippedEverywhere) {
  const Result result = run(3, "steps=8 numbers=skip 4:1:always-nan");
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  for (const Diary& diary : result.finished) {
    EXPECT_THAT(diary.events, Contains(HasSubstr("4 numbers 1")));
    EXPECT_EQ(diary.steps.at(4).digest, diary.steps.at(3).digest) << "the model must not have moved";
    EXPECT_NE(diary.steps.at(5).digest, diary.steps.at(4).digest);
  }
  expect_agreement(result.finished);
}

TEST_F(ElasticTest, NonFiniteGradientsCanRollTheJobBack) {
  const Result undisturbed = run(3, "steps=8");
  const Result result = run(3, "steps=8 save=3 numbers=rollback 5:1:nan");
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  for (const Diary& diary : result.finished) {
    EXPECT_THAT(diary.events, Contains(HasSubstr("3 rollback")));
  }
  expect_same_training(result, undisturbed);
}

// Three rounds are an epoch. Those who are left do the round of the loss again from its start, parameters, statistics
// and optimizer included, so that they are where they would be had there never been another.
TEST_F(ElasticTest, ARoundOfALostWorkerIsDoneAgainByThoseWhoAreLeft) {
  const std::string rounds = "samples=432 steps=5 round=3 policy=uniform timeout=4000 ";
  for (const std::string outer : {"average", "nesterov"}) {
    const std::string common = rounds + "outer=" + outer + " ";
    const Result undisturbed = run(2, common);
    ASSERT_EQ(undisturbed.finished.size(), 2U) << undisturbed.outcome.errors;
    EXPECT_EQ(undisturbed.finished[0].end, "6 workers 2");
    for (const std::string fault :
         {"0:1:forward",
          "0:1:after-optimizer local=1",
          "0:0:before-optimizer local=1",
          "0:1:after-optimizer local=2",
          "0:1:optimizer:300 local=2",
          "0:1:stop local=1"}) {
      SCOPED_TRACE(outer + " " + fault);
      const Result result = run(3, common + fault);
      ASSERT_EQ(result.finished.size(), 2U) << result.outcome.errors;
      for (const Diary& diary : result.finished) {
        EXPECT_EQ(diary.end, "6 workers 2");
        EXPECT_THAT(diary.ledgers, AllOf(Not(IsEmpty()), Each("complete")));
        for (const auto& [number, step] : undisturbed.finished[0].steps) {
          EXPECT_EQ(diary.steps.at(number).digest, step.digest) << "round " << number;
        }
      }
    }
  }
}

// With rounds of one step of plain SGD nothing depends on who computes: they take the course of a job in step.
TEST_F(ElasticTest, RoundsOfOneStepTakeTheCourseOfAJobInStepWhoeverIsLost) {
  const std::string common = "steps=12 model=plain momentum=0 evaluate=2 save=3 ";
  const Result in_step = run(4, common);
  for (const std::string fault :
       {"5:2:forward",
        "5:2:before-optimizer",
        "5:2:after-optimizer",
        "5:2:optimizer:200",
        "5:0:after-optimizer",
        "6:2:evaluate",
        "6:0:save:300",
        "4:1:memory policy=uniform"}) {
    SCOPED_TRACE(fault);
    const Result result = run(4, common + "round=1 " + fault);
    ASSERT_EQ(result.finished.size(), fault.find("memory") == std::string::npos ? 3U : 4U) << result.outcome.errors;
    expect_same_training(result, in_step);
  }
}

// A round takes 4 s and the time-out is 2 s: who has given up a round must not have to wait until the others are at its
// end, or it would take them for lost.
TEST_F(ElasticTest, WhoeverComputesInALongRoundHearsThatAnotherHasGivenItUp) {
  const Result result = run(3, "samples=768 batch=48 steps=1 round=8 pace=500 timeout=2000 policy=uniform 0:1:memory");
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  for (const Diary& diary : result.finished) {
    EXPECT_EQ(diary.end, "2 workers 3");
    EXPECT_THAT(diary.ledgers, AllOf(Not(IsEmpty()), Each("complete")));
    EXPECT_THAT(diary.events, Contains(HasSubstr("memory 1")));
  }
  expect_agreement(result.all);
}

TEST_F(ElasticTest, ANewWorkerJoinsBetweenTwoRounds) {
  const Result result = run(2, "samples=480 batch=48 steps=39 round=2 pace=30 await=3 outer=nesterov 3:first:join");
  ASSERT_EQ(result.finished.size(), 3U) << result.outcome.errors;
  for (const Diary& diary : result.finished) {
    EXPECT_EQ(diary.end, "40 workers 3");
    EXPECT_THAT(diary.ledgers, AllOf(Not(IsEmpty()), Each("complete")));
    EXPECT_THAT(diary.events, Contains(AllOf(HasSubstr("join 2"), HasSubstr("joined-at-3"))));
  }
  expect_agreement(result.all);
}

// Seeded kills, stops, joins, failures of memory and changes of speed. ISOCHRON_CHAOS_SEEDS and ISOCHRON_CHAOS_STEPS
// make it longer: `make chaos`.
TEST_F(ElasticTest, Chaos) {
  const auto setting = [](const char* name, std::int64_t otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::stoll(text);
  };
  const std::int64_t seeds = setting("ISOCHRON_CHAOS_SEEDS", 1);
  const std::int64_t steps = setting("ISOCHRON_CHAOS_STEPS", 60);
  const std::int64_t first = setting("ISOCHRON_CHAOS_FIRST", 1);
  const std::string common = "pace=20 save=20 evaluate=10 timeout=4000 steps=" + std::to_string(steps);
  const Result undisturbed = run(4, common);
  for (std::int64_t seed = first; seed < first + seeds; ++seed) {
    const std::string faults = chaos(static_cast<std::uint64_t>(seed), steps);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + faults);
    const Result result = run(4, common + " " + faults);
    expect_same_training(result, undisturbed, 5e-3);
    if (HasFailure()) {
      std::cout << result.outcome.errors << '\n';
      return;
    }
  }
}

}  // namespace
}  // namespace isochron
