#include "isochron/emulate/checkup.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/emulate/process.h"

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

/// Folders with a python3 that says what it has; the variables are as before afterwards.
class PythonCheckupTest : public testing::Test {
 protected:
  PythonCheckupTest() {
    for (const char* const name : {"PATH", "PYTHONPATH", "VIRTUAL_ENV", "ISOCHRON_INTERPRETER"}) {
      const char* const value = std::getenv(name);
      before_.emplace_back(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
      unsetenv(name);
    }
    std::filesystem::create_directories(folder_);
    setenv("PATH", folder_.c_str(), 1);
  }
  ~PythonCheckupTest() override {
    for (const auto& [name, value] : before_) {
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
    }
    std::filesystem::remove_all(folder_);
  }
  PythonCheckupTest(const PythonCheckupTest&) = delete;
  PythonCheckupTest& operator=(const PythonCheckupTest&) = delete;

  std::filesystem::path write(const std::filesystem::path& python, const std::string& script) const {
    const std::filesystem::path path = folder_ / python;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  std::filesystem::path folder_ = own_path();
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

TEST_F(PythonCheckupTest, LooksIntoTheShellsPython) {
  EXPECT_THAT(find(check_python(), "Python").text, HasSubstr("no python3 on the PATH"));
  write("python3", "echo python 3.9.1; echo supported False; echo package False");
  const std::vector<Finding> old = check_python();
  EXPECT_THAT(find(old, "Python").remedy, HasSubstr("3.10"));
  EXPECT_THAT(find(old, "isochron in Python").remedy, HasSubstr("pip install isochron[torch]"));
  EXPECT_THAT(find(old, "frameworks").text, HasSubstr("neither PyTorch nor TensorFlow"));
  write(
      "python3",
      "echo python 3.12.1; echo supported True; echo package True; echo isochron 0.1.0; echo torch 2.6.0+cpu; "
      "echo tensorflow 2.21.0");
  const std::vector<Finding> good = check_python();
  EXPECT_EQ(find(good, "isochron in Python").text, "the package is there, version 0.1.0");
  EXPECT_EQ(find(good, "frameworks").text, "PyTorch 2.6.0+cpu, TensorFlow 2.21.0");
  EXPECT_EQ(find(good, "frameworks").health, Health::kOk);
}

TEST_F(PythonCheckupTest, WarnsOfFrameworksThatAreTooOld) {
  write(
      "python3",
      "echo python 3.12.1; echo supported True; echo package True; echo torch 2.5.1; echo tensorflow-cpu 2.9.0");
  const Finding frameworks = find(check_python(), "frameworks");
  EXPECT_EQ(frameworks.health, Health::kWarn);
  EXPECT_EQ(frameworks.text, "PyTorch 2.5.1, TensorFlow 2.9.0");
  EXPECT_EQ(
      frameworks.remedy,
      "PyTorch 2.6 or later is supported: pip install --upgrade isochron[torch]; TensorFlow 2.21 or later is "
      "supported: pip install --upgrade isochron[tensorflow]");
  // The package asks for the same.
  std::ifstream project(ISOCHRON_SOURCE_DIR "/pyproject.toml");
  const std::string text{std::istreambuf_iterator<char>(project), {}};
  EXPECT_THAT(text, HasSubstr("\"torch>=2.6\""));
  EXPECT_THAT(text, HasSubstr("\"tensorflow>=2.21\""));
}

TEST_F(PythonCheckupTest, PrefersTheInterpreterInUseThenThatOfTheEnvironment) {
  write("python3", "echo python 3.10.0");
  EXPECT_EQ(find(check_python(), "Python").text, "3.10.0 at " + (folder_ / "python3").string());
  setenv("VIRTUAL_ENV", (folder_ / "venv").c_str(), 1);  // it has none
  EXPECT_THAT(find(check_python(), "Python").text, HasSubstr("3.10.0"));
  write("venv/bin/python3", "echo python 3.11.0");
  EXPECT_THAT(find(check_python(), "Python").text, HasSubstr("3.11.0"));
  setenv("ISOCHRON_INTERPRETER", write("python3.12", "echo python 3.12.0").c_str(), 1);
  EXPECT_THAT(find(check_python(), "Python").text, HasSubstr("3.12.0"));
  // A program in an environment takes the one beside it, whatever is active.
  unsetenv("ISOCHRON_INTERPRETER");
  std::filesystem::copy(ISOCHRON_PROGRAM, folder_ / "isochron");
  EXPECT_THAT(run({folder_ / "isochron", "doctor"}).output, HasSubstr("3.10.0 at " + (folder_ / "python3").string()));
}

TEST_F(PythonCheckupTest, TakesNoFolderOfThatNameForThePackage) {
  std::filesystem::create_directories(folder_ / "isochron");
  setenv(
      "ISOCHRON_INTERPRETER",
      write("python3", "PATH='" + *before_.front().second + "' exec python3 -S \"$@\"").c_str(),
      1);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const std::vector<Finding> in_a_clone = check_python();
  setenv("PYTHONPATH", folder_.c_str(), 1);
  const std::vector<Finding> on_the_path = check_python();
  std::filesystem::current_path(before);
  EXPECT_THAT(find(in_a_clone, "isochron in Python").text, EndsWith("has no package isochron"));
  EXPECT_THAT(find(on_the_path, "isochron in Python").text, EndsWith("has no package isochron"));
}

TEST(CheckupTest, SeesWhetherQuotasHold) {
  const Finding quotas = find(check_limits(), "CPU quotas");
  // On a busy machine the process may get less than its quota, and then it says so.
  EXPECT_THAT(quotas.text, testing::AnyOf(HasSubstr("0.25 cores are 0."), HasSubstr("control group")));
  EXPECT_EQ(quotas.remedy.empty(), quotas.health == Health::kOk);
}

}  // namespace
}  // namespace isochron::emulate
