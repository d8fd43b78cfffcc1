#include "isochron/worker/fence.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/own_path.h"
#include <gtest/gtest.h>

namespace isochron::worker {
namespace {

using namespace std::chrono_literals;

class FenceTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  [[nodiscard]] std::string said() const {
    std::ifstream file(path_);
    std::string text;
    std::getline(file, text);
    return text;
  }

  const std::filesystem::path path_ = own_path();
  const Peer peer_{.rank = 3, .host = "far", .process = 4711};
};

TEST_F(FenceTest, SaysWhomToKillWhereAndWhetherItWasDone) {
  EXPECT_TRUE(run_fence("echo {pid} of {host}, {pid} >" + path_.string(), peer_));
  EXPECT_EQ(said(), "4711 of far, 4711");
  EXPECT_FALSE(run_fence("exit 3", peer_));
  EXPECT_FALSE(run_fence("kill -9 $$", peer_));
}

// As ssh does to a host that does not answer.
TEST_F(FenceTest, IsKilledWithWhatItHasStartedIfItDoesNotEnd) {
  EXPECT_FALSE(run_fence("sleep 600 & echo $! >" + path_.string() + "; wait", peer_, 1s));
  const int sleeper = std::stoi(said());
  const auto end = std::chrono::steady_clock::now() + 60s;
  const auto is_there = [sleeper] {  // as a process that nobody has waited for yet it may be there still
    std::ifstream file("/proc/" + std::to_string(sleeper) + "/stat");
    std::string number;
    std::string name;
    std::string state;
    return static_cast<bool>(file >> number >> name >> state) && state != "Z";
  };
  while (is_there() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_FALSE(is_there());
}

TEST_F(FenceTest, DoesNotCountWhereNobodyLearnsHowItEnded) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  EXPECT_FALSE(run_fence("exit 0", peer_));
  std::signal(SIGCHLD, before);
  EXPECT_TRUE(run_fence("exit 0", peer_));
}

}  // namespace
}  // namespace isochron::worker
