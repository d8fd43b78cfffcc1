#include "isochron/io/join_requests.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/failure.h"
#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isochron::io {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class JoinRequestsTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Why `text` is no request; it is gone afterwards, so that the next one can be taken.
  [[nodiscard]] std::string refusal(const std::string& text) const {
    std::ofstream(folder_ / "join-0.json") << text;
    const std::string reason = failure([&] { (void)take_join_request(folder_); });
    EXPECT_TRUE(fs::is_empty(folder_)) << text;
    return reason;
  }

  const fs::path folder_ = own_path();
};

TEST_F(JoinRequestsTest, AreTakenOnceInTheirOrder) {
  const JoinRequestFile first{.command = {"isochron", "train", "--seed", "7"}, .host = "a"};
  const JoinRequestFile second{.command = {"isochron"}};
  post_join_request(folder_, first);
  post_join_request(folder_, second);
  EXPECT_EQ(take_join_request(folder_), first);
  EXPECT_EQ(take_join_request(folder_), second);
  EXPECT_EQ(take_join_request(folder_), std::nullopt);
  EXPECT_EQ(take_join_request(folder_ / "none"), std::nullopt);
}

TEST_F(JoinRequestsTest, TellForWhomTheyWait) {
  EXPECT_FALSE(is_asked_for(folder_, 1));
  post_join_request(folder_, {.command = {"isochron"}, .worker = 1});
  EXPECT_TRUE(is_asked_for(folder_, 1));
  EXPECT_FALSE(is_asked_for(folder_, 11)) << "another number with the same end";
  EXPECT_EQ(take_join_request(folder_)->worker, 1);
  EXPECT_FALSE(is_asked_for(folder_, 1));
}

TEST_F(JoinRequestsTest, OtherFilesAreLeftAlone) {
  std::ofstream(folder_ / "join-0.json.tmp") << "{";
  EXPECT_EQ(take_join_request(folder_), std::nullopt);
  EXPECT_FALSE(fs::is_empty(folder_));
}

TEST_F(JoinRequestsTest, DamagedOnesAreRefusedAndRemoved) {
  EXPECT_THAT(refusal(""), HasSubstr("join-0.json, is damaged: it is not JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("command is missing"));
  EXPECT_THAT(refusal(R"({"command":"rm","host":""})"), HasSubstr("command is of another type; permitted: an array"));
  EXPECT_THAT(refusal(R"({"command":[7],"host":""})"), HasSubstr("command is of another type; permitted: text"));
  EXPECT_THAT(refusal(R"({"command":["a"]})"), HasSubstr("host is missing"));
  EXPECT_THAT(refusal(R"({"command":[],"host":""})"), HasSubstr("names no program"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("nested too deeply; permitted: 2 levels"));
  EXPECT_THAT(refusal(std::string((1 << 20) + 1, ' ')), HasSubstr("cannot be read or is above 1 MiB"));
}

}  // namespace
}  // namespace isochron::io
