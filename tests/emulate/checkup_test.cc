#include "isochron/emulate/checkup.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::emulate {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

Finding find(const std::vector<Finding>& findings, const std::string& check) {
  const auto found = std::ranges::find(findings, check, &Finding::check);
  return found == findings.end() ? Finding{} : *found;
}

TEST(CheckupTest, TellsADataFolderFromAnEmptyOne) {
  const std::filesystem::path folder = own_path();
  std::filesystem::create_directories(folder / "cifar-10");
  EXPECT_THAT(find(check_machine(folder), "data").text, EndsWith("cifar-10"));
  EXPECT_EQ(find(check_machine(folder / "cifar-10"), "data").health, Health::kWarn);
  std::filesystem::remove_all(folder);
}

TEST(CheckupTest, NamesTheProgramThatIsMissing) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nonexistent", 1);
  const Finding rates = find(check_limits(), "link rates");
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(rates.health, Health::kWarn);
  EXPECT_THAT(rates.text, HasSubstr("the program ip"));
  EXPECT_THAT(rates.remedy, HasSubstr("iproute2"));
}

TEST(CheckupTest, SeesWhetherQuotasHold) {
  const Finding quotas = find(check_limits(), "CPU quotas");
  // On a busy machine the process may get less than its quota, and then it says so.
  EXPECT_THAT(quotas.text, testing::AnyOf(HasSubstr("0.25 cores are 0."), HasSubstr("control group")));
  EXPECT_EQ(quotas.remedy.empty(), quotas.health == Health::kOk);
}

}  // namespace
}  // namespace isochron::emulate
