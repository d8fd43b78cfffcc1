#include "isochron/io/machines_file.h"

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::io {
namespace {

using testing::HasSubstr;

/// 0.1 s a sample, 1 GB and 0.1 GB a sample.
plan::Profile common() {
  plan::Profile profile;
  profile.model = "cnn";
  profile.dataset = "mnist";
  profile.points = {
      {.batch = 1, .p50_seconds = 0.1, .p90_seconds = 0.1, .bytes = 1.1e9},
      {.batch = 10, .p50_seconds = 1.0, .p90_seconds = 1.0, .bytes = 2e9}};
  return profile;
}

std::vector<plan::Group> parse(const std::string& text) {
  return parse_machines(text, "m.toml", common(), [](const std::string& name) {
    plan::Profile own = common();
    own.points.back().p50_seconds = own.points.back().p90_seconds = 0.5;
    own.model = name == "other.json" ? "vgg11" : own.model;
    if (name == "none.json") {
      throw std::invalid_argument("there is none");
    }
    return own;
  });
}

std::string machines_refusal(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(MachinesFileTest, ReadsAllThereIsToSay) {
  const auto groups = parse(
      "[[machine]]\n"
      "name = \"desk\"\n"
      "count = 2\n"
      "speed = 0.5\n"
      "max_batch = 96\n"
      "min_batch = 8\n"
      "granularity = 8\n"
      "noise = 0.05\n"
      "price_per_hour = 0.40\n"
      "network = { rate = \"1gbit\", delay = \"200us\" }\n"
      "[[machine]]\n"
      "profile = \"own.json\"\n"
      "memory = \"3gbyte\"\n");
  ASSERT_EQ(groups.size(), 2U);
  const plan::Machine& desk = groups[0].machine;
  EXPECT_EQ(desk.name, "desk");
  EXPECT_EQ(groups[0].count, 2);
  EXPECT_DOUBLE_EQ(desk.curve.seconds(10), 2.0);
  EXPECT_EQ(desk.max_batch, 96);
  EXPECT_EQ(desk.min_batch, 8);
  EXPECT_EQ(desk.granularity, 8);
  EXPECT_EQ(desk.noise, 0.05);
  EXPECT_EQ(desk.price_per_hour, 0.40);
  EXPECT_EQ(desk.link.bytes_per_second, 1.25e8);
  EXPECT_EQ(desk.link.delay_seconds, 0.0002);
  const plan::Machine& other = groups[1].machine;
  EXPECT_EQ(other.name, "machine-1");
  EXPECT_DOUBLE_EQ(other.curve.seconds(10), 0.5);
  EXPECT_EQ(other.max_batch, 20);  // 1 GB and 0.1 GB a sample
}

TEST(MachinesFileTest, NamesTheLineTheKeyAndWhatIsPermitted) {
  EXPECT_EQ(machines_refusal(""), "m.toml:1: no machine; permitted: one or more tables that start with [[machine]]");
  EXPECT_THAT(
      machines_refusal("[[machine]]\ncost = 1\n"), HasSubstr("m.toml:2: unknown key 'cost'; permitted: name, speed, "));
  EXPECT_EQ(machines_refusal("[[machine]]\nspeed = 0\n"), "m.toml:2: speed is 0; permitted: 0.000001 to 1000000");
  EXPECT_EQ(machines_refusal("[[machine]]\ncount = 0\n"), "m.toml:2: count is 0; permitted: 1 to 10000");
  EXPECT_EQ(
      machines_refusal("[[machine]]\nmax_batch = 1\nmin_batch = 2\n"),
      "m.toml:2: max_batch is 1; permitted: min_batch or more");
  EXPECT_EQ(
      machines_refusal("[[machine]]\nmemory = \"1gbyte\"\n"),
      "m.toml:2: memory is '1gbyte'; permitted: what the model takes for a batch of 1, or more");
  EXPECT_THAT(
      machines_refusal("[[machine]]\nmemory = \"3gbyte\"\nmax_batch = 3\n"), HasSubstr("permitted: one of the two"));
  EXPECT_EQ(machines_refusal("[[machine]]\nnoise = -1\n"), "m.toml:2: noise is -1; permitted: 0 to 3");
  EXPECT_THAT(
      machines_refusal("[[machine]]\nnetwork = { rate = \"fast\" }\n"),
      HasSubstr("m.toml:2: rate is 'fast'; permitted"));
  EXPECT_EQ(machines_refusal("[[machine]]\nprofile = \"none.json\"\n"), "m.toml:2: profile: there is none");
  EXPECT_EQ(
      machines_refusal("[[machine]]\nprofile = \"other.json\"\n"),
      "m.toml:2: profile is of vgg11 on mnist; permitted: of cnn on mnist");
  EXPECT_EQ(
      machines_refusal("[[machine]]\nname = \"a\"\n[[machine]]\nname = \"a\"\n"),
      "m.toml:4: name is \"a\" again; permitted: distinct names");
  EXPECT_THAT(
      machines_refusal("[[machine]]\ncount = 9000\n[[machine]]\ncount = 9000\n"),
      HasSubstr("m.toml:4: more than 10000 machines"));
  EXPECT_THROW((void)read_machines_file("/nonexistent/m.toml", common()), Error);
}

}  // namespace
}  // namespace isochron::io
