#include "isochron/cli/config_option.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/cli/options.h"

namespace isochron::cli {
namespace {

using testing::HasSubstr;

class ConfigOptionTest : public testing::Test {
 protected:
  ConfigOptionTest() {
    add_config_option(command_, file_);
    add_whole(command_, "--steps", steps_, 1, 1000, "");
    command_.add_option("--policy", policy_);
    command_.add_flag("--quiet", quiet_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void run(const std::string& config, const std::string& words = "") {
    std::ofstream(path_) << config;
    command_.parse("--config " + path_ + " " + words, false);
    apply_config(command_, file_);
  }
  std::string refusal(const std::string& config) {
    try {
      run(config);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  }

  const std::string path_ = own_path(".toml").string();
  CLI::App command_;
  std::string file_;
  std::int64_t steps_ = 7;
  std::string policy_ = "uniform";
  bool quiet_ = false;
};

TEST_F(ConfigOptionTest, SetsWhatTheCommandLineLeftAlone) {
  run("steps = 20\npolicy = \"lbb\"\nquiet = true\n", "--policy dlb");
  EXPECT_EQ(steps_, 20);
  EXPECT_EQ(policy_, "dlb");
  EXPECT_TRUE(quiet_);
}

TEST_F(ConfigOptionTest, NamesFileAndLineOfAnUnknownKey) {
  EXPECT_EQ(refusal("steps = 20\nstep = 3\n"), path_ + ":2: unknown key 'step'; permitted: steps, policy, quiet");
  EXPECT_THAT(refusal("config = \"x.toml\"\n"), HasSubstr("unknown key 'config'"));
  EXPECT_THAT(refusal("help = true\n"), HasSubstr("unknown key 'help'"));
}

TEST_F(ConfigOptionTest, NamesFileAndLineOfAValueThatIsNotPermitted) {
  EXPECT_EQ(refusal("\nsteps = 0\n"), path_ + ":2: --steps is '0'; permitted: a whole number from 1 to 1000");
}

TEST_F(ConfigOptionTest, TakesOnlyTrueAndFalseForAFlag) {
  EXPECT_EQ(refusal("quiet = 2\n"), path_ + ":1: quiet is '2'; permitted: true or false");
}

TEST_F(ConfigOptionTest, NamesAFileThatCannotBeRead) {
  command_.parse("--config none.toml", false);
  try {
    apply_config(command_, file_);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "--config is 'none.toml'; permitted: a file that can be read (cannot read configuration file none.toml: No "
        "such file or directory)");
  }
}

}  // namespace
}  // namespace isochron::cli
