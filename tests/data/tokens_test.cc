#include "isochron/data/tokens.h"

#include "support.h"
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

std::unique_ptr<Dataset> read(const Bytes& file, const TokenOptions& options) {
  return read_tokens(in_memory("text.bin", file), options);
}

TEST(TokensTest, CutsSamplesThatShareOneToken) {
  // Tokens 1, 2, 3, 4, 5, 0x0106: with a context of 2 the samples are 1 2 3 and 3 4 5; the last one fills no sample.
  const auto dataset = read(bytes({1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 1}), {.context = 2, .vocabulary = 300});
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->shape(), (SampleShape{.element = Element::kUint16, .sizes = {3}}));
  EXPECT_EQ(dataset->shape().bytes(), 6);
  EXPECT_EQ(dataset->classes(), 300);
  std::int64_t label = 0;
  EXPECT_EQ(sample_of(*dataset, 0, &label), bytes({1, 0, 2, 0, 3, 0}));
  EXPECT_EQ(label, kNoLabel);
  EXPECT_EQ(sample_of(*dataset, 1), bytes({3, 0, 4, 0, 5, 0}));
}

TEST(TokensTest, ReadsTokensOf32Bits) {
  const TokenOptions options{.element = Element::kUint32, .context = 1, .vocabulary = 1 << 17};
  const auto dataset = read(bytes({1, 0, 0, 0, 255, 255, 1, 0}), options);
  EXPECT_EQ(dataset->size(), 1);
  EXPECT_EQ(sample_of(*dataset, 0), bytes({1, 0, 0, 0, 255, 255, 1, 0}));
}

TEST(TokensTest, RefusesFilesOfAnotherLength) {
  EXPECT_EQ(
      refusal([] { read(bytes({1, 0, 2}), {.context = 1}); }),
      "text.bin: it has 3 bytes; permitted: a multiple of the 2 of a token");
  EXPECT_EQ(
      refusal([] { read(bytes({1, 0, 2, 0}), {.context = 2}); }), "text.bin: it has 2 tokens; permitted: 3 or more");
  EXPECT_EQ(refusal([] { read({}, {.context = 2}); }), "text.bin: it has 0 tokens; permitted: 3 or more");
}

TEST(TokensTest, RefusesTokensOutsideOfTheVocabulary) {
  const auto dataset = read(bytes({1, 0, 2, 0, 3, 0, 44, 1, 5, 0}), {.context = 2, .vocabulary = 300});
  EXPECT_EQ(sample_of(*dataset, 0), bytes({1, 0, 2, 0, 3, 0}));
  // 44 + 256 is 300, the fourth token of the file.
  EXPECT_EQ(refusal([&] { sample_of(*dataset, 1); }), "text.bin: token 3 is 300; permitted: 0 to 299");
}

TEST(TokensTest, RefusesOptionsOutOfRange) {
  const Bytes file(64);
  EXPECT_EQ(refusal([&] { read(file, {.context = 0}); }), "context is 0; permitted: 1 to 1048576");
  EXPECT_EQ(refusal([&] { read(file, {.vocabulary = 65537}); }), "vocabulary is 65537; permitted: 1 to 65536");
  EXPECT_EQ(
      refusal([&] { read(file, {.element = Element::kUint8}); }), "element is of 1 byte; permitted: 2 or 4 bytes");
}

TEST(TokensTest, NamesAFileThatCannotBeRead) {
  EXPECT_THROW(open_tokens("no-such-file", {}), Error);
}

}  // namespace
}  // namespace isochron::data
