#include "isochron/emulate/mpirun.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::emulate {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

TEST(MpirunTest, KnowsTheFamilies) {
  EXPECT_EQ(parse_family("mpirun (Open MPI) 5.0.11\n"), MpiFamily::kOpenMpi5);
  EXPECT_EQ(parse_family("mpirun (Open MPI) 4.1.4\n"), MpiFamily::kOpenMpi);
  EXPECT_EQ(parse_family("HYDRA build details:\n    Version: 4.0.2\n"), MpiFamily::kHydra);
  EXPECT_EQ(parse_family("Intel(R) MPI Library for Linux* OS, Version 2021.11\n"), MpiFamily::kHydra);
  EXPECT_EQ(parse_family("something else"), MpiFamily::kUnknown);
}

TEST(MpirunTest, GivesEachWhatItUnderstands) {
  const auto words = [](MpiFamily family, bool as_root) {
    return mpirun_command({.path = "mpirun", .family = family}, {.workers = 4, .as_root = as_root});
  };
  EXPECT_THAT(words(MpiFamily::kHydra, true), ElementsAre("mpirun", "-n", "4"));
  EXPECT_THAT(
      words(MpiFamily::kOpenMpi, true),
      ElementsAre("mpirun", "-n", "4", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root"));
  EXPECT_THAT(words(MpiFamily::kOpenMpi5, false), Contains("ulfm"));
  EXPECT_THAT(words(MpiFamily::kOpenMpi5, false), Not(Contains("--allow-run-as-root")));
}

TEST(MpirunTest, ReachesIntoNetworksByTcpAlone) {
  const auto words = [](MpiFamily family) {
    return mpirun_command({.path = "mpirun", .version = "MPICH", .family = family}, {.workers = 2, .hub = "hub"});
  };
  EXPECT_THAT(words(MpiFamily::kOpenMpi5), AllOf(Contains("tcp,self"), Contains("hub"), Not(Contains("^uct,ofi"))));
  EXPECT_THROW((void)words(MpiFamily::kHydra), Error);
}

TEST(MpirunTest, RefusesWhatIsNoProgram) {
  EXPECT_THROW((void)find_mpirun("/nonexistent/mpirun"), std::invalid_argument);
  EXPECT_THROW((void)find_mpirun("/"), std::invalid_argument);
  EXPECT_EQ(find_mpirun("true").family, MpiFamily::kUnknown);
}

}  // namespace
}  // namespace isochron::emulate
