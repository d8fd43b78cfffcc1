#include "isochron/core/options.h"

#include <stdexcept>

#include "tests/policy/support.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/curve/curve.h"
#include "isochron/core/policy/registry.h"

namespace isochron {
namespace {

using ::testing::ElementsAre;

struct Sample {
  double share = 0.5;
  std::int64_t count = 3;
  bool quick = true;
  std::string colour = "red";
  std::vector<double> weights;

  void describe(OptionTable& table) {
    table.number("share", share, 0.0, 1.0, "a share");
    table.integer("count", count, 1, kNoLimit, "a count");
    table.flag("quick", quick, "a switch");
    table.choice("colour", colour, {"red", "blue"}, "a colour");
    table.numbers("weights", weights, "a list");
  }
};

Sample read(const std::string& text) {
  OptionTable table(Specification::parse("policy", text));
  Sample sample;
  sample.describe(table);
  table.finish();
  return sample;
}

std::string refusal_of(const std::string& text) {
  return error_of<std::invalid_argument>([&] { (void)read(text); });
}

TEST(OptionsTest, KeepsDefaultsWhereNothingIsSaid) {
  const Sample sample = read("sample");
  EXPECT_EQ(sample.share, 0.5);
  EXPECT_EQ(sample.count, 3);
  EXPECT_TRUE(sample.quick);
  EXPECT_EQ(sample.colour, "red");
  EXPECT_TRUE(sample.weights.empty());
}

TEST(OptionsTest, ReadsEveryKind) {
  const Sample sample = read("sample:share=0.25,count=7,quick=off,colour=blue,weights=1/2.5/4");
  EXPECT_EQ(sample.share, 0.25);
  EXPECT_EQ(sample.count, 7);
  EXPECT_FALSE(sample.quick);
  EXPECT_EQ(sample.colour, "blue");
  EXPECT_THAT(sample.weights, ElementsAre(1.0, 2.5, 4.0));
}

TEST(OptionsTest, NamesOptionValueAndWhatIsPermitted) {
  EXPECT_EQ(refusal_of("sample:share=3"), "policy sample: share is 3; permitted: 0 to 1");
  EXPECT_EQ(refusal_of("sample:share=nan"), "policy sample: share is nan; permitted: 0 to 1");
  EXPECT_EQ(refusal_of("sample:share="), "policy sample: share is empty; permitted: 0 to 1");
  EXPECT_EQ(refusal_of("sample:count=0"), "policy sample: count is 0; permitted: 1 or more");
  EXPECT_EQ(refusal_of("sample:count=2.5"), "policy sample: count is 2.5; permitted: 1 or more");
  EXPECT_EQ(refusal_of("sample:quick=yes"), "policy sample: quick is yes; permitted: on | off");
  EXPECT_EQ(refusal_of("sample:colour=green"), "policy sample: colour is green; permitted: red | blue");
  EXPECT_EQ(
      refusal_of("sample:weights=1//2"),
      "policy sample: weights is 1//2; permitted: positive numbers with slashes between: 1/2/4");
  EXPECT_EQ(
      refusal_of("sample:weights=1/-2"),
      "policy sample: weights is 1/-2; permitted: positive numbers with slashes between: 1/2/4");
}

TEST(OptionsTest, RefusesWhatIsNotAnOption) {
  EXPECT_EQ(
      refusal_of("sample:size=3"), "policy sample: option is size; permitted: share, count, quick, colour, weights");
  EXPECT_EQ(refusal_of("sample:share"), "policy sample: option is 'share'; permitted: name=value");
  EXPECT_EQ(refusal_of("sample:"), "policy sample: option is ''; permitted: name=value");
  EXPECT_EQ(refusal_of("sample:count=1,count=2"), "policy sample: option count is there twice; permitted: once");
}

TEST(RegistryTest, NamesAnUnknownPolicyAndThePermittedOnes) {
  const std::string text = error_of<std::invalid_argument>([] { (void)make_policy("unifrom"); });
  EXPECT_TRUE(text.starts_with("policy is 'unifrom'; permitted: uniform, static, ")) << text;
}

TEST(RegistryTest, HelpListsEveryOptionWithItsDefault) {
  for (const PolicyHelp& help : policy_help()) {
    EXPECT_FALSE(help.summary.empty()) << help.name;
    for (const OptionTable::Row& row : help.options) {
      EXPECT_FALSE(row.meaning.empty()) << row.name;
      // A default must be a value that the policy itself accepts.
      if (row.standard != "none") {
        EXPECT_NO_THROW((void)make_policy(help.name + ":" + row.name + "=" + row.standard)) << row.name;
      }
    }
  }
}

}  // namespace
}  // namespace isochron
