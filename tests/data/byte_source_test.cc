#include "isochron/data/byte_source.h"

#include <filesystem>
#include <fstream>

#include "support.h"
#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

class FileSourceTest : public testing::Test {
 protected:
  FileSourceTest() { std::ofstream(file_) << "0123456789"; }
  ~FileSourceTest() override { std::filesystem::remove(file_); }

  std::filesystem::path file_ = own_path();
};

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(FileSourceTest, ReadsFromAnyPlace) {
  const auto source = open_file(file_);
  EXPECT_EQ(source->size(), 10);
  Bytes out(3);
  source->read(7, out);
  EXPECT_EQ(out, bytes({'7', '8', '9'}));
  source->read(0, out);
  EXPECT_EQ(out, bytes({'0', '1', '2'}));
}

TEST_F(FileSourceTest, ChecksTheBounds) {
  const auto source = open_file(file_);
  Bytes out(3);
  EXPECT_THROW(source->read(8, out), InvariantError);
  EXPECT_THROW(source->read(-1, out), InvariantError);
  EXPECT_THROW(in_memory("memory", counting(10))->read(8, out), InvariantError);
}

TEST_F(FileSourceTest, ReportsAFileThatShrinks) {
  const auto source = open_file(file_);
  std::filesystem::resize_file(file_, 8);
  Bytes out(3);
  EXPECT_EQ(
      error_of([&] { source->read(7, out); }),
      "cannot read data file " + file_.string() + ": it ends at byte 8 but had 10");
}

TEST_F(FileSourceTest, RefusesWhatIsNoFile) {
  EXPECT_EQ(error_of([] { open_file("/dev/null"); }), "cannot read data file /dev/null: it is no regular file");
  EXPECT_EQ(error_of([] { open_file("missing"); }), "cannot read data file missing: No such file or directory");
}

}  // namespace
}  // namespace isochron::data
