#include "isochron/emulate/owner.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace isochron::emulate {
namespace {

TEST(OwnerTest, TellsTheLivingFromTheDead) {
  EXPECT_FALSE(is_orphan(owner_name()));
  EXPECT_FALSE(is_orphan(owner_name() + "-3"));
  const std::string pid = std::to_string(getpid());
  EXPECT_TRUE(is_orphan("isochron-" + pid + "-1")) << "another process had this number";
  const pid_t child = fork();
  if (child == 0) {
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(is_orphan("isochron-" + std::to_string(child) + "-12345-0"));
  EXPECT_TRUE(is_orphan("isochron-mpi-" + std::to_string(child) + "-aB3xY9"));
  EXPECT_FALSE(is_orphan("isochron-mpi-" + pid + "-aB3xY9"));
}

TEST(OwnerTest, LeavesOtherNamesAlone) {
  for (const char* const name :
       {"", "isochron", "isochron-1", "isochron-x-1", "docker-99999999-1", "isochron-9-1x", "isochron-mpi-aB3xY9"}) {
    EXPECT_FALSE(is_orphan(name)) << name;
  }
}

}  // namespace
}  // namespace isochron::emulate
