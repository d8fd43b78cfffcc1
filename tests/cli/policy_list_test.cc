#include "isochron/cli/policy_list.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::cli {
namespace {

using testing::ElementsAre;

TEST(PolicyListTest, TakesACommaBetweenPolicies) {
  EXPECT_THAT(parse_policies("uniform,isochron,oracle"), ElementsAre("uniform", "isochron", "oracle"));
}

TEST(PolicyListTest, KeepsTheOptionsWithTheirPolicy) {
  EXPECT_THAT(
      parse_policies("omnilearn:dead-band=0.1,ewma=0.2,uniform,dlb:interval=5,isochron"),
      ElementsAre("omnilearn:dead-band=0.1,ewma=0.2", "uniform", "dlb:interval=5", "isochron"));
}

TEST(PolicyListTest, RefusesWhatIsNoPolicy) {
  for (const char* const text :
       {"",
        ",",
        "uniform,",
        ",uniform",
        "nonsense",
        "ewma=0.2",
        "ewma=0.2,omnilearn",
        "omnilearn:ewma=2",
        "omnilearn:speed=1",
        "uniform,uniform",
        "oracle:x=1",
        "uniform,ewma=0.2"}) {
    EXPECT_THROW((void)parse_policies(text), std::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace isochron::cli
