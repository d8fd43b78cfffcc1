#include "isochron/io/worker_phase.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/own_path.h"
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "isochron/core/error.h"
#include "isochron/io/worker_variables.h"

namespace isochron::io {
namespace {

namespace fs = std::filesystem;

class WorkerPhaseTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    setenv(kJobFolderVariable, folder_.c_str(), /*overwrite=*/1);
  }
  void TearDown() override {
    unsetenv(kJobFolderVariable);
    fs::remove_all(folder_);
  }

  [[nodiscard]] bool reached(WorkerPhase phase) const { return has_reached(folder_, getpid(), phase); }

  const fs::path folder_ = own_path();
};

TEST_F(WorkerPhaseTest, IsSeenInTheFolderOfTheJob) {
  EXPECT_FALSE(reached(WorkerPhase::kConnecting));
  note_worker_phase(WorkerPhase::kConnecting);
  EXPECT_TRUE(reached(WorkerPhase::kConnecting));
  EXPECT_FALSE(reached(WorkerPhase::kConnected));
  EXPECT_FALSE(has_reached(folder_, getpid() + 1, WorkerPhase::kConnecting));
  unsetenv(kJobFolderVariable);
  note_worker_phase(WorkerPhase::kConnected);
  EXPECT_FALSE(reached(WorkerPhase::kConnected));
}

// As on a full disk: a worker that has done its part would count as lost.
TEST_F(WorkerPhaseTest, TheEndIsNotedWhereNoFileCanBeMade) {
  note_worker_phase(WorkerPhase::kConnected);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_THROW(note_worker_phase(WorkerPhase::kMember), Error);
  EXPECT_NO_THROW(note_worker_phase(WorkerPhase::kEnded));
  EXPECT_NO_THROW(note_worker_phase(WorkerPhase::kEnded)) << "again";
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(reached(WorkerPhase::kEnded));
  EXPECT_TRUE(reached(WorkerPhase::kConnected));
}

}  // namespace
}  // namespace isochron::io
