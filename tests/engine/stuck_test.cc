// A worker that waits for MPI itself, where no time-out is looked at and nobody is late: its watchdog ends it, and MPI
// tells the others.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/ranks/death.h"
#include "tests/ranks/group.h"
#include <gtest/gtest.h>
#include <mpi.h>

#include "isochron/comm/ulfm.h"
#include "isochron/comm/world.h"
#include "isochron/engine/async/mpi_link.h"
#include "isochron/engine/job.h"

namespace {

std::atomic<bool> hangs = false;

// For good: a call that went on when the test is over would find MPI at its end.
void hang_if_asked() {
  while (hangs) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

}  // namespace

// MPI lets a program come between it and its callers.
extern "C" int MPI_Improbe(int source, int tag, MPI_Comm comm, int* found, MPI_Message* message, MPI_Status* status) {
  hang_if_asked();
  return PMPI_Improbe(source, tag, comm, found, message, status);
}
extern "C" int MPI_Comm_free(MPI_Comm* comm) {
  hang_if_asked();
  return PMPI_Comm_free(comm);
}

namespace isochron {
namespace {

using namespace std::chrono_literals;
using testing::world_rank;

constexpr int kStuck = 2;

MPI_Comm everybody() {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  return copy;
}

// What rank 2 does has no end; the others, who do `meanwhile`, hear that it is gone.
void expect_end_of(const std::function<void()>& stuck, const std::function<void()>& meanwhile = [] {}) {
  if (!has_ulfm()) {
    GTEST_SKIP() << "this MPI ends the whole job when a rank dies";
  }
  if (world_rank() == kStuck) {
    testing::expect_death();
    stuck();
    ADD_FAILURE() << "it has an end";
    return;
  }
  meanwhile();
  const auto deadline = std::chrono::steady_clock::now() + 90s;
  bool lost = false;
  while (!(lost = is_lost(MPI_COMM_WORLD, kStuck)) && std::chrono::steady_clock::now() < deadline) {
    int found = 0;  // nothing is, but MPI gets to hear of a death meanwhile
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_TRUE(lost);
  if (!lost) {
    MPI_Abort(MPI_COMM_WORLD, 1);  // or nothing would end it
  }
}

// Everybody answers the roll, since only MPI has lost it.
TEST(StuckVoteTest, EndsTheWorker) {
  World world(everybody(), {.timeout = 300ms});
  expect_end_of([&] { (void)world.agree(true); });
}

// One of them is stopped before it makes its next one, say.
TEST(StuckStartTest, OfAnotherJobEndsTheWorker) {
  (void)Job({.global_batch = 6});
  expect_end_of([] { (void)Job({.global_batch = 6, .timeout = 0.3}); });
}

TEST(StuckLinkTest, EndsTheWorker) {
  MpiLink link(MPI_COMM_WORLD, std::vector<Peer>(3), 300ms);
  expect_end_of([&] {
    hangs = true;
    (void)link.take_request();
  });
}

TEST(StuckGroupTest, ThatIsLeftForAnotherEndsTheWorker) {
  World world(everybody(), {.timeout = 2s});
  expect_end_of(
      [&] {
        hangs = true;
        world.rebuild({});
      },
      [&] { world.rebuild({}); });
}

// Which nobody else has to notice: what this process has to do after the job is done all the same.
TEST(StuckPartingTest, IsLeftBehindAfterTenSeconds) {
  auto world = std::make_unique<World>(everybody(), WorldOptions{.timeout = 60s});
  const auto start = std::chrono::steady_clock::now();
  hangs = world_rank() == kStuck;
  world.reset();
  if (hangs) {
    EXPECT_GE(std::chrono::steady_clock::now() - start, 10s);
  }
  hangs = false;
}

}  // namespace
}  // namespace isochron
