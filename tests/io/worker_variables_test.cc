#include "isochron/io/worker_variables.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace isochron::io {
namespace {

class WorkerVariablesTest : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv(kMinBatchVariable); }

  static void set(const char* text) { ::setenv(kMinBatchVariable, text, 1); }
};

TEST_F(WorkerVariablesTest, ReadsWhatTheLauncherSet) {
  EXPECT_FALSE(whole_variable(kMinBatchVariable, 0, 10));
  EXPECT_FALSE(positive_variable(kMinBatchVariable));
  set("7");
  EXPECT_EQ(whole_variable(kMinBatchVariable, 0, 10), 7);
  EXPECT_EQ(positive_variable(kMinBatchVariable), 7.0);
  set("0.125");
  EXPECT_EQ(positive_variable(kMinBatchVariable), 0.125);
}

TEST_F(WorkerVariablesTest, RefusesAnythingElseByName) {
  for (const char* const text : {"", "x", "7x", " 7", "11", "-1", "1e3", "99999999999999999999"}) {
    set(text);
    EXPECT_THROW((void)whole_variable(kMinBatchVariable, 0, 10), std::invalid_argument) << text;
  }
  for (const char* const text : {"", "x", "0", "-1", "inf", "nan", "1e999", "1 2"}) {
    set(text);
    EXPECT_THROW((void)positive_variable(kMinBatchVariable), std::invalid_argument) << text;
  }
  set("many");
  try {
    (void)whole_variable(kMinBatchVariable, 0, 10);
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "ISOCHRON_MIN_BATCH is 'many'; permitted: a whole number from 0 to 10");
  }
}

}  // namespace
}  // namespace isochron::io
