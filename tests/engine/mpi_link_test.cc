// What comes from another asynchronous worker over MPI is bounded as over TCP.
#include "isochron/engine/async/mpi_link.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "tests/ranks/group.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

namespace isochron {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::world_rank;

// A defect of the sender's, or one whose memory is damaged.
TEST(MpiLinkTest, AMessageBeyondItsBoundNamesItsSenderBeforeAnyMemoryIsTakenForIt) {
  MpiLink link(MPI_COMM_WORLD, {{.rank = 0, .host = "here"}, {.rank = 1, .host = "there"}}, 60s);
  if (world_rank() == 1) {
    link.tell(0, server::kGoodbyeTag, "short");
    link.tell(0, server::kReportTag, std::string(server::Link::kMostMessage + 1, 'x'));
  } else {
    std::optional<server::Request> first;
    while (!first) {
      first = link.take_request();
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(first->message, "short");
    std::string refusal;
    while (refusal.empty()) {
      try {
        if (const auto request = link.take_request()) {
          refusal = "a message of " + std::to_string(request->message.size()) + " bytes was taken";
        }
      } catch (const PeerError& error) {
        refusal = error.what();
        EXPECT_EQ(error.peers().at(0).rank, 1);
      }
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_THAT(
        refusal, HasSubstr("rank 1 on there sent a message of kind 3 and 268435457 bytes; permitted: 268435456 bytes"));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  link.fail({});  // what is still on its way will never be taken
}

}  // namespace
}  // namespace isochron
