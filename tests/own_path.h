// A path in the temporary folder that belongs to the running test alone, even if several suites run at once.
#pragma once

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace isochron {

inline std::filesystem::path own_path(const std::string& extension = "") {
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string("isochron_") + test.test_suite_name() + "_" + test.name();
  return std::filesystem::path(::testing::TempDir()) / (name + "_" + std::to_string(::getpid()) + extension);
}

}  // namespace isochron
