#include "isochron/io/profile_file.h"

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "isochron/core/error.h"

namespace isochron::io {
namespace {

using nlohmann::json;
using testing::HasSubstr;

plan::Profile small() {
  plan::Profile profile;
  profile.model = "cnn";
  profile.dataset = "fashion-mnist";
  profile.dataset_size = 60000;
  profile.device = "cpu";
  profile.machine = "desk";
  profile.cores = 1.5;
  profile.threads = 1;
  profile.parameter_bytes = 1234.0;
  profile.prepare_seconds = 1e-5;
  profile.update_seconds = 2e-3;
  profile.copy_seconds = 5e-10;
  profile.points = {
      {.batch = 1, .p50_seconds = 0.011, .p90_seconds = 0.012, .bytes = 1e8, .readings = 30},
      {.batch = 2, .p50_seconds = 0.021, .p90_seconds = 0.022, .bytes = 1.1e8, .readings = 20}};
  return profile;
}

TEST(ProfileFileTest, ReadsWhatItWrote) {
  const std::string text = to_json(small(), "1.2.3");
  const plan::Profile read = parse_profile(text, "p.json");
  EXPECT_EQ(to_json(read, "1.2.3"), text);
  EXPECT_EQ(read.machine, "desk");
  EXPECT_EQ(read.points[1].batch, 2);
  EXPECT_EQ(read.points[1].p90_seconds, 0.022);
  const json document = json::parse(text);
  EXPECT_EQ(document["schema"], 1);
  EXPECT_NEAR(document["curve"]["slope"], 0.01, 1e-9);
  EXPECT_NEAR(document["curve"]["fixed"], 0.001, 1e-9);
}

TEST(ProfileFileTest, IgnoresWhatNewerVersionsAdd) {
  json document = json::parse(to_json(small(), "1.2.3"));
  document["colour"] = {{"deep", {{"deeper", 1}}}};
  document["points"][0]["mood"] = "good";
  document.erase("curve");
  document.erase("copy_seconds");
  EXPECT_EQ(parse_profile(document.dump(), "p.json").copy_seconds, 0.0);
}

TEST(ProfileFileTest, NamesTheFileAndWhatIsWrong) {
  const auto refusal = [](const auto& change) -> std::string {
    json document = json::parse(to_json(small(), "1.2.3"));
    change(document);
    try {
      (void)parse_profile(document.dump(), "p.json");
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](json& d) { d["schema"] = 7; }), "p.json: schema is 7; permitted: 1");
  EXPECT_EQ(refusal([](json& d) { d.erase("points"); }), "p.json: points is missing");
  EXPECT_EQ(refusal([](json& d) { d["model"] = 7; }), "p.json: model is of another type; permitted: text");
  EXPECT_THAT(refusal([](json& d) { d["points"][0]["batch"] = -1; }), HasSubstr("p.json: batch is of another type"));
  EXPECT_THAT(refusal([](json& d) { d["points"][1]["batch"] = 1; }), HasSubstr("p.json: batch is 1; permitted: "));
  EXPECT_THAT(refusal([](json& d) { d["points"][0]["seconds"] = 3; }), HasSubstr("seconds is of another type"));
  EXPECT_THAT(refusal([](json& d) { d = json::array(); }), HasSubstr("p.json: the file is not a JSON object"));
  EXPECT_THROW((void)parse_profile("{", "p.json"), std::invalid_argument);
  EXPECT_THROW((void)parse_profile(std::string(1000, '['), "p.json"), std::invalid_argument);
  EXPECT_THROW((void)read_profile_file("/nonexistent/p.json"), Error);
}

}  // namespace
}  // namespace isochron::io
