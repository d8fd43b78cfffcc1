#include "isochron/data/tokens.h"

#include <vector>

#include "support.h"
#include <gtest/gtest.h>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

std::unique_ptr<Dataset> tokens_of(const Bytes& file, const TokenOptions& options) {
  return read_tokens(in_memory("text.bin", file), options);
}

TEST(TokensTest, CutsSamplesThatShareOneToken) {
  // Tokens 1, 2, 3, 4, 5, 0x0106: with a context of 2 the samples are 1 2 3 and 3 4 5; the last one fills no sample.
  const auto dataset = tokens_of(bytes({1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 1}), {.context = 2, .vocabulary = 300});
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
  const auto dataset = tokens_of(bytes({1, 0, 0, 0, 255, 255, 1, 0}), options);
  EXPECT_EQ(dataset->size(), 1);
  EXPECT_EQ(sample_of(*dataset, 0), bytes({1, 0, 0, 0, 255, 255, 1, 0}));
}

TEST(TokensTest, RefusesFilesOfAnotherLength) {
  EXPECT_EQ(
      refusal([] { tokens_of(bytes({1, 0, 2}), {.context = 1}); }),
      "text.bin: it has 3 bytes; permitted: a multiple of the 2 of a token");
  EXPECT_EQ(
      refusal([] { tokens_of(bytes({1, 0, 2, 0}), {.context = 2}); }),
      "text.bin: it has 2 tokens; permitted: 3 or more");
  EXPECT_EQ(refusal([] { tokens_of({}, {.context = 2}); }), "text.bin: it has 0 tokens; permitted: 3 or more");
}

TEST(TokensTest, RefusesTokensOutsideOfTheVocabulary) {
  const auto dataset = tokens_of(bytes({1, 0, 2, 0, 3, 0, 44, 1, 5, 0}), {.context = 2, .vocabulary = 300});
  EXPECT_EQ(sample_of(*dataset, 0), bytes({1, 0, 2, 0, 3, 0}));
  // 44 + 256 is 300, the fourth token of the file.
  EXPECT_EQ(refusal([&] { sample_of(*dataset, 1); }), "text.bin: token 3 is 300; permitted: 0 to 299");
}

TEST(TokensTest, RefusesOptionsOutOfRange) {
  const Bytes file(64);
  EXPECT_EQ(refusal([&] { tokens_of(file, {.context = 0}); }), "context is 0; permitted: 1 to 1048576");
  EXPECT_EQ(refusal([&] { tokens_of(file, {.vocabulary = 65537}); }), "vocabulary is 65537; permitted: 1 to 65536");
  EXPECT_EQ(
      refusal([&] { tokens_of(file, {.element = Element::kUint8}); }), "element is of 1 byte; permitted: 2 or 4 bytes");
}

TEST(TokensTest, NamesAFileThatCannotBeRead) {
  EXPECT_THROW(open_tokens("no-such-file", {}), Error);
  EXPECT_THROW(open_documents("no-such-file", "no-such-index", {}), Error);
}

/// An index of documents that start at these tokens, of which none is 256 or more.
Bytes starts(const std::vector<int>& tokens) {
  Bytes index;
  for (const int token : tokens) {
    index = index + bytes({token, 0, 0, 0, 0, 0, 0, 0});
  }
  return index;
}

std::unique_ptr<Dataset> read_with(const Bytes& index, const TokenOptions& options) {
  const Bytes text = bytes({1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0});
  return read_documents(in_memory("text.bin", text), *in_memory("text.starts", index), options);
}

TEST(TokensTest, DocumentsAreSamplesAndLongOnesSeveral) {
  // Documents 1 2 | 3 | 4 5 6 7 8. The second has nothing to predict; a context of 3 makes 4 5 6 7 and 7 8 of the last.
  const auto dataset = read_with(starts({0, 2, 3}), {.context = 3, .vocabulary = 9});
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->shape().sizes, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(
      std::vector<std::int32_t>(dataset->lengths().begin(), dataset->lengths().end()),
      (std::vector<std::int32_t>{1, 3, 1}));
  EXPECT_EQ(sample_of(*dataset, 0), bytes({1, 0, 2, 0, 0, 0, 0, 0}));
  EXPECT_EQ(sample_of(*dataset, 1), bytes({4, 0, 5, 0, 6, 0, 7, 0}));
  EXPECT_EQ(sample_of(*dataset, 2), bytes({7, 0, 8, 0, 0, 0, 0, 0}));
}

TEST(TokensTest, RefusesAnIndexThatIsNotOfTheFile) {
  const auto refused = [](const Bytes& index) { return refusal([&] { read_with(index, {}); }); };
  EXPECT_EQ(refused({}), "text.starts: it has 0 bytes; permitted: a multiple of 8, above 0");
  EXPECT_EQ(refused(bytes({0, 0, 0})), "text.starts: it has 3 bytes; permitted: a multiple of 8, above 0");
  EXPECT_EQ(refused(starts({1})), "text.starts: document 0 starts at token 1; permitted: 0");
  EXPECT_EQ(refused(starts({0, 3, 3})), "text.starts: document 2 starts at token 3; permitted: 4 to 7");
  EXPECT_EQ(refused(starts({0, 8})), "text.starts: document 1 starts at token 8; permitted: 1 to 7");
  EXPECT_EQ(
      refused(starts({0, 1, 2, 3, 4, 5, 6, 7})),
      "text.starts: no document has 2 tokens or more; permitted: one or more that have");
}

}  // namespace
}  // namespace isochron::data
