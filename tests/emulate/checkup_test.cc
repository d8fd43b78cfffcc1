#include "isochron/emulate/checkup.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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

TEST(CheckupTest, LooksIntoTheShellsPython) {
  const std::filesystem::path folder = own_path();
  std::filesystem::create_directories(folder);
  const std::string path = std::getenv("PATH");
  setenv("PATH", folder.c_str(), 1);
  EXPECT_THAT(find(check_python(), "Python").text, HasSubstr("no python3 on the PATH"));
  // One that says what it has.
  std::ofstream(folder / "python3") << "#!/bin/sh\necho python 3.9.1; echo supported False; echo package False\n";
  std::filesystem::permissions(folder / "python3", std::filesystem::perms::owner_all);
  const std::vector<Finding> old = check_python();
  EXPECT_THAT(find(old, "Python").remedy, HasSubstr("3.10"));
  EXPECT_THAT(find(old, "isochron in Python").remedy, HasSubstr("pip install isochron[torch]"));
  EXPECT_THAT(find(old, "frameworks").text, HasSubstr("neither PyTorch nor TensorFlow"));
  std::ofstream(folder / "python3") << "#!/bin/sh\necho python 3.12.1; echo supported True; echo package True; "
                                       "echo isochron 0.1.0; echo torch 2.6.0\n";
  const std::vector<Finding> good = check_python();
  EXPECT_EQ(find(good, "isochron in Python").text, "the package is there, version 0.1.0");
  EXPECT_EQ(find(good, "frameworks").text, "PyTorch 2.6.0");
  setenv("PATH", path.c_str(), 1);
  std::filesystem::remove_all(folder);
}

TEST(CheckupTest, SeesWhetherQuotasHold) {
  const Finding quotas = find(check_limits(), "CPU quotas");
  // On a busy machine the process may get less than its quota, and then it says so.
  EXPECT_THAT(quotas.text, testing::AnyOf(HasSubstr("0.25 cores are 0."), HasSubstr("control group")));
  EXPECT_EQ(quotas.remedy.empty(), quotas.health == Health::kOk);
}

}  // namespace
}  // namespace isochron::emulate
