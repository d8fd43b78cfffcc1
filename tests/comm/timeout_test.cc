// A peer that is late or dead is named, and nobody hangs.
#include <functional>
#include <string>

#include "tests/ranks/death.h"
#include "tests/ranks/group.h"
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "isochron/comm/mpi_backend.h"
#include "isochron/comm/ulfm.h"
#include "isochron/core/peer_error.h"

namespace isochron {
namespace {

using ::testing::HasSubstr;
using testing::world_rank;
using Tensors = std::vector<at::Tensor>;

struct Failure {
  std::string kind;
  std::string text;
  std::vector<int> ranks;
};

Failure failure_of(const std::function<void()>& operation) {
  const auto describe = [](const char* kind, const PeerError& error) {
    Failure failure{.kind = kind, .text = error.what()};
    for (const Peer& peer : error.peers()) {
      EXPECT_FALSE(peer.host.empty());
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(peer.rank) + " on " + peer.host));
      failure.ranks.push_back(peer.rank);
    }
    return failure;
  };
  try {
    operation();
  } catch (const TimeoutError& error) {
    return describe("time-out", error);
  } catch (const PeerLostError& error) {
    return describe("lost", error);
  }
  return {.kind = "none"};
}

MpiBackendOptions impatient() {
  return {.timeout = std::chrono::milliseconds(1500)};
}

TEST(TimeoutTest, NamesTheRankThatIsMissingFromACollective) {
  const auto backend = make_mpi_backend(MPI_COMM_WORLD, world_rank() == 0 ? impatient() : MpiBackendOptions{});
  Tensors tensors{at::ones({5})};
  if (world_rank() == 2) {
    MPI_Barrier(MPI_COMM_WORLD);  // until rank 0 has given up
    return;
  }
  const Failure failure = failure_of([&] { backend->allreduce(tensors)->wait(); });
  if (world_rank() == 0) {
    EXPECT_EQ(failure.kind, "time-out");
    EXPECT_THAT(failure.ranks, ::testing::ElementsAre(2));
    EXPECT_THAT(failure.text, HasSubstr("allreduce of 5 x Float timed out after 1.5 s"));
    EXPECT_THAT(failure.text, HasSubstr("has started 0 collectives, this rank 1"));
    // The backend is done for: what follows fails at once, with the same words.
    EXPECT_EQ(failure_of([&] { backend->barrier()->wait(); }).text, failure.text);
  } else if (has_ulfm()) {
    // Rank 1 would have waited five minutes; the revocation frees it.
    EXPECT_EQ(failure.kind, "lost");
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(TimeoutTest, NamesTheSenderItWaitsFor) {
  const auto backend = make_mpi_backend(MPI_COMM_WORLD, impatient());
  if (world_rank() == 0) {
    Tensors tensors{at::ones({5})};
    const Failure failure = failure_of([&] { backend->recv(tensors, 1, 0)->wait(); });
    EXPECT_EQ(failure.kind, "time-out");
    EXPECT_THAT(failure.ranks, ::testing::ElementsAre(1));
    EXPECT_THAT(failure.text, HasSubstr("recv of 5 x Float from rank 1 timed out"));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(TimeoutTest, ReachesTheFutureAsTheSameException) {
  const auto backend = make_mpi_backend(MPI_COMM_WORLD, impatient());
  if (world_rank() == 0) {
    Tensors tensors{at::ones({5})};
    const auto work = backend->recv(tensors, 1, 0);
    const Failure failure = failure_of([&] { work->getFuture()->waitAndThrow(); });
    EXPECT_EQ(failure.kind, "time-out");
    EXPECT_THROW(work->wait(), TimeoutError);  // the future comes first, the work a moment later
    EXPECT_TRUE(work->isCompleted());
    EXPECT_FALSE(work->isSuccess());
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(TimeoutTest, AbortEndsWhatIsInFlight) {
  const auto backend = make_mpi_backend(MPI_COMM_WORLD);
  if (world_rank() == 0) {
    Tensors tensors{at::ones({5})};
    const auto work = backend->recv(tensors, 1, 0);
    backend->abort();
    EXPECT_THROW(work->wait(), Error);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(LostRankTest, IsNamedToTheSurvivors) {
  if (!has_ulfm()) {
    GTEST_SKIP() << "this MPI ends the whole job when a rank dies";
  }
  const auto backend = make_mpi_backend(MPI_COMM_WORLD);
  if (world_rank() == 1) {
    testing::die_on_purpose();
  }
  Tensors tensors{at::ones({1 << 20})};
  const Failure failure = failure_of([&] { backend->allreduce(tensors)->wait(); });
  EXPECT_EQ(failure.kind, "lost");
  // A survivor whom the other's revocation reaches first may not yet know who died.
  if (!failure.ranks.empty()) {
    EXPECT_THAT(failure.ranks, ::testing::ElementsAre(1));
  }
}

}  // namespace
}  // namespace isochron
