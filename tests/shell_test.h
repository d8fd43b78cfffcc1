// A test that runs commands by the shell in a folder of its own and looks at what they write, say and end with.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/own_path.h"
#include <gtest/gtest.h>
#include <sys/wait.h>

namespace isochron {

struct Outcome {
  int status = -1;  // -1: ended by a signal
  std::string output;
  std::string errors;
};

inline std::string content(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Bad usage or bad input: status 2, a line that starts with `message`, a hint, and nothing on standard output.
inline void expect_refused(const Outcome& outcome, const std::string& message) {
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(outcome.errors.substr(0, 10 + message.size()), "isochron: " + message);
  EXPECT_EQ(std::ranges::count(outcome.errors, '\n'), 2) << outcome.errors;
  EXPECT_NE(outcome.errors.find("\nTry 'isochron "), std::string::npos) << outcome.errors;
}

class ShellTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// What it says is kept beside the folder, which holds only what the command has written.
  [[nodiscard]] Outcome shell(const std::string& words) const {
    const std::string base = folder_.string() + ".captured";
    const std::string command =
        "cd '" + folder_.string() + "' && " + words + " >'" + base + ".out' 2>'" + base + ".err' </dev/null";
    const int status = std::system(command.c_str());  // NOLINT(bugprone-command-processor): the test's own words
    Outcome outcome{
        .status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
        .output = content(base + ".out"),
        .errors = content(base + ".err")};
    std::filesystem::remove(base + ".out");
    std::filesystem::remove(base + ".err");
    return outcome;
  }

  const std::filesystem::path folder_ = own_path();
};

}  // namespace isochron
