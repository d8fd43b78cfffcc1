#include "isochron/core/replica/introduction.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace isochron {
namespace {

Introduction introduction(const std::string& policy) {
  return {.shared = {{"policy", policy}, {"seed", "3"}}, .worker = {.kind = "cuda", .max_batch = 8}, .host = "node7"};
}

std::string refusal(const std::vector<Introduction>& introductions) {
  try {
    (void)agree(introductions);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(IntroductionTest, WorkersHaveTheirRanksAsIdsAndGetNames) {
  std::vector<Introduction> introductions(2, introduction("uniform"));
  introductions[1].worker.name = "fast";
  const std::vector<Worker> workers = agree(introductions);
  EXPECT_EQ(workers[0].id, 0U);
  EXPECT_EQ(workers[0].name, "node7-0");
  EXPECT_EQ(workers[0].max_batch, 8);
  EXPECT_EQ(workers[1].id, 1U);
  EXPECT_EQ(workers[1].name, "fast");
}

TEST(IntroductionTest, NamesSayOnWhichHost) {
  std::vector<Introduction> introductions(4, introduction("uniform"));
  const auto set_hosts = [&](const std::vector<std::string>& hosts) {
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      introductions[rank].host = hosts[rank];
    }
  };
  const auto names = [&] {
    std::vector<std::string> all;
    for (const Worker& worker : agree(introductions)) {
      all.push_back(worker.name);
    }
    return all;
  };
  set_hosts({"node7.lab", "node7.lab", "node7.lab", "node7.lab"});
  EXPECT_EQ(names(), (std::vector<std::string>{"node7-0", "node7-1", "node7-2", "node7-3"}));
  set_hosts({"", "", "", ""});
  EXPECT_EQ(names(), (std::vector<std::string>{"worker-0", "worker-1", "worker-2", "worker-3"}));
  set_hosts({"node7.lab", "node8.lab", "node7.lab", "node8.lab"});
  introductions[3].worker.name = "fast";
  EXPECT_EQ(names(), (std::vector<std::string>{"node7-0", "node8-0", "node7-1", "fast"}));
  set_hosts({"node7.lab", "node7.attic", "node7.lab", "node7.attic"});
  EXPECT_EQ(names(), (std::vector<std::string>{"node7.lab-0", "node7.attic-0", "node7.lab-1", "fast"}));
}

TEST(IntroductionTest, OptionsThatDifferAreRefusedByNameRankAndValue) {
  EXPECT_EQ(
      refusal({introduction("uniform"), introduction("uniform"), introduction("lbb")}),
      "policy is lbb on rank 2; permitted: what rank 0 has, uniform");
  Introduction shorter = introduction("uniform");
  shorter.shared.erase("seed");
  EXPECT_EQ(refusal({introduction("uniform"), shorter}), "seed is nothing on rank 1; permitted: what rank 0 has, 3");
  EXPECT_EQ(refusal({shorter, introduction("uniform")}), "seed is 3 on rank 1; permitted: what rank 0 has, nothing");
}

TEST(IntroductionTest, ANewcomerWithOtherOptionsIsObjectedTo) {
  EXPECT_EQ(objection(introduction("uniform"), introduction("uniform")), "");
  EXPECT_EQ(
      objection(introduction("lbb"), introduction("uniform")),
      "policy is lbb on the newcomer; permitted: what rank 0 has, uniform");
}

TEST(IntroductionTest, WhatTheFirstWorkerReadOfAnEarlierRunHoldsForAll) {
  std::vector<Introduction> introductions(2, introduction("isochron"));
  for (Introduction& one : introductions) {
    one.shared["start_from"] = "run.jsonl";
  }
  introductions[0].former = {{"node7-0", 30.0}, {"node7-1", 10.0}};
  introductions[0] = Introduction::decode(introductions[0].encode());
  const std::vector<Worker> workers = agree(introductions);
  EXPECT_EQ(workers[0].former_speed, 30.0);
  EXPECT_EQ(workers[1].former_speed, 10.0);
  introductions[0].trouble = "start_from is 'run.jsonl'; permitted: a run log";
  introductions[0] = Introduction::decode(introductions[0].encode());
  EXPECT_EQ(refusal(introductions), "start_from is 'run.jsonl'; permitted: a run log");
}

TEST(IntroductionTest, SurvivesItsWay) {
  const Introduction back = Introduction::decode(introduction("static:split=1,2").encode());
  EXPECT_EQ(back.shared, introduction("static:split=1,2").shared);
  EXPECT_EQ(back.worker.kind, "cuda");
  EXPECT_EQ(back.worker.max_batch, 8);
  EXPECT_EQ(back.host, "node7");
  EXPECT_THROW((void)Introduction::decode("nonsense"), std::invalid_argument);
}

}  // namespace
}  // namespace isochron
