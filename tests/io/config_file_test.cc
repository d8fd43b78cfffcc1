#include "isochron/io/config_file.h"

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::io {
namespace {

using testing::StartsWith;

TEST(ConfigFileTest, GivesValuesAsTheyCouldStandOnACommandLine) {
  const auto entries = parse_config(
      "# a comment\npolicy = \"omnilearn:dead-band=0.1\"\nsteps = 100\nlearning-rate = 5e-2\nquiet = true\n", "a.toml");
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[0].key, "learning-rate");
  EXPECT_EQ(entries[0].value, "0.05");
  EXPECT_EQ(entries[0].place, "a.toml:4: ");
  EXPECT_EQ(entries[1].value, "omnilearn:dead-band=0.1");
  EXPECT_EQ(entries[2].value, "true");
  EXPECT_EQ(entries[3].value, "100");
}

std::string config_refusal(const std::string& text) {
  try {
    (void)parse_config(text, "a.toml");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigFileTest, NamesTheLineOfWhatIsNoValue) {
  EXPECT_EQ(
      config_refusal("steps = 1\nweights = [1, 2]\n"),
      "a.toml:2: weights is no single value; permitted: text in quotes, a number, true or false");
  EXPECT_THAT(config_refusal("[train]\nsteps = 1\n"), StartsWith("a.toml:1: train is no single value"));
  EXPECT_THAT(config_refusal("steps = 1\nsteps = 2\n"), StartsWith("a.toml:2: "));
  EXPECT_THROW((void)read_config_file("none.toml"), Error);
}

}  // namespace
}  // namespace isochron::io
