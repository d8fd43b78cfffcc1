#include "isochron/io/checkpoint_file.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "tests/failure.h"
#include "tests/own_path.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace isochron::io {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class CheckpointFileTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write_sample() const {
    write_checkpoint_file(
        path_,
        {{"empty", {.layout = {.type = "int64", .element_bytes = 8, .sizes = {0, 7}}}},
         {"matrix", {.layout = {.type = "int16", .element_bytes = 2, .sizes = {2, 3}}, .bytes = bytes("abcdefghijkl")}},
         {"scalar", {.layout = {.type = "float", .element_bytes = 4}, .bytes = bytes("wxyz")}}});
  }
  [[nodiscard]] std::string content() const {
    std::ifstream stream(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  const fs::path folder_ = own_path();
  const fs::path path_ = folder_ / "a.ckpt";
};

/// Reads and verifies all of it.
void read_all(const std::string& file) {
  std::istringstream stream(file);
  CheckpointReader reader(stream, "a.ckpt");
  reader.verify();
  for (const StoredPart& part : reader.parts()) {
    std::string out(part.bytes, '\0');
    reader.read(part, std::as_writable_bytes(std::span(out)));
  }
}

TEST_F(CheckpointFileTest, GivesBackWhatWasWritten) {
  write_sample();
  std::istringstream stream(content());
  CheckpointReader reader(stream, "a.ckpt");
  ASSERT_EQ(reader.parts().size(), 3U);
  const StoredPart& matrix = reader.parts()[1];
  EXPECT_EQ(matrix.name, "matrix");
  EXPECT_EQ(matrix.layout, (PartLayout{.type = "int16", .element_bytes = 2, .sizes = {2, 3}}));
  EXPECT_EQ(reader.parts()[0].bytes, 0U);
  std::string out(12, '\0');
  reader.read(matrix, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "abcdefghijkl");
  out.resize(4);
  reader.read(reader.parts()[2], std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "wxyz");
}

TEST_F(CheckpointFileTest, NoticesEveryFlippedBit) {
  write_sample();
  const std::string whole = content();
  read_all(whole);
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THAT(failure([&] { read_all(damaged); }), StartsWith("cannot read checkpoint a.ckpt: ")) << "bit " << bit;
  }
}

TEST_F(CheckpointFileTest, NoticesEveryMissingEndAndWhatFollowsIt) {
  write_sample();
  const std::string whole = content();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(failure([&] { read_all(whole.substr(0, size)); }), StartsWith("cannot read checkpoint a.ckpt: "));
  }
  EXPECT_THAT(failure([&] { read_all(whole + "x"); }), HasSubstr("1 bytes follow its last part"));
}

TEST_F(CheckpointFileTest, SaysWhichPartIsDamagedAndBothChecksums) {
  write_sample();
  std::string damaged = content();
  damaged.back() = 'Z';
  // zlib.crc32(b"wxyZ") and zlib.crc32(b"wxyz")
  EXPECT_EQ(
      failure([&] { read_all(damaged); }),
      "cannot read checkpoint a.ckpt: part 'scalar' is damaged: checksum f80d0484 instead of c363244c");
}

/// What an index with right checksums but hostile fields is refused with.
std::string refusal(const std::vector<StoredPart>& parts, std::uint64_t content_bytes) {
  const std::string index = encode_index(parts);
  return failure([&] { (void)decode_index(bytes(index), content_bytes); });
}

TEST(CheckpointIndexTest, RefusesSizesThatCannotBe) {
  const auto part = [](std::vector<std::int64_t> sizes) {
    return StoredPart{.name = "p", .layout = {.type = "t", .element_bytes = 8, .sizes = std::move(sizes)}};
  };
  const std::int64_t huge = std::int64_t{1} << 32;
  EXPECT_EQ(refusal({part({-1})}, 100), "part 'p' has impossible sizes");
  EXPECT_EQ(refusal({part({huge, huge})}, 100), "part 'p' has impossible sizes");
  EXPECT_EQ(refusal({part({huge, huge, 0})}, 100), "part 'p' has impossible sizes");
  EXPECT_THAT(refusal({part({huge})}, 100), StartsWith("it is cut short: part 'p'"));
  EXPECT_THAT(refusal({part({13})}, 100), StartsWith("it is cut short: part 'p'"));  // 104 bytes
  EXPECT_EQ(refusal({part({12})}, 100), "4 bytes follow its last part");
  EXPECT_EQ(
      refusal({StoredPart{.name = "p", .layout = {.type = "t", .element_bytes = 0}}}, 0),
      "part 'p' has impossible sizes");
}

TEST(CheckpointIndexTest, RefusesNamesTwiceOrOutOfOrder) {
  const auto part = [](const std::string& name) { return StoredPart{.name = name, .layout = {.type = "t"}}; };
  EXPECT_EQ(refusal({part("b"), part("b")}, 2), "part 'b' is not in the order of names");
  EXPECT_EQ(refusal({part("b"), part("a")}, 2), "part 'a' is not in the order of names");
  std::string index = encode_index(std::vector{part("a")});
  index[2] = '\n';
  EXPECT_THAT(failure([&] { (void)decode_index(bytes(index), 1); }), HasSubstr("not printable"));
}

TEST_F(CheckpointFileTest, KeepsThePreviousFileWhenTheDiskIsFull) {
  write_sample();
  const std::string before = content();
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string large(100'000, 'x');
  const std::string words = failure([&] {
    write_checkpoint_file(path_, {{"large", {.layout = {.type = "text", .sizes = {100'000}}, .bytes = bytes(large)}}});
  });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  (void)std::signal(SIGXFSZ, old_handler);

  EXPECT_EQ(words, "cannot write " + path_.string() + ": File too large");
  EXPECT_EQ(content(), before);
  EXPECT_EQ(files(), 1);
}

TEST_F(CheckpointFileTest, KeepsThePreviousFileInAFolderThatCannotBeWritten) {
  write_sample();
  const std::string before = content();
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_exec);
  const bool root = geteuid() == 0;
  constexpr uid_t kNobody = 65534;
  if (root) {  // whom no mode holds back
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  const std::string words = failure([&] { write_checkpoint_file(folder_ / "b.ckpt", {}); });
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  fs::permissions(folder_, fs::perms::owner_all);
  EXPECT_EQ(words, "cannot write " + (folder_ / "b.ckpt").string() + ": Permission denied");
  EXPECT_EQ(content(), before);
  EXPECT_EQ(files(), 1);
}

}  // namespace
}  // namespace isochron::io
