#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <ranges>
#include <vector>

#include "support.h"
#include <gtest/gtest.h>

#include "isochron/data/synthetic_images.h"
#include "isochron/data/synthetic_tokens.h"

namespace isochron::data {
namespace {

using Mean = std::vector<double>;

/// The mean image of each class of the first `count` samples.
std::map<std::int64_t, Mean> class_means(const Dataset& dataset, std::int64_t count) {
  std::map<std::int64_t, Mean> sums;
  std::map<std::int64_t, int> counts;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t label = 0;
    const Bytes sample = sample_of(dataset, i, &label);
    Mean& sum = sums.try_emplace(label, sample.size()).first->second;
    for (std::size_t k = 0; k < sample.size(); ++k) {
      sum[k] += std::to_integer<int>(sample[k]);
    }
    ++counts[label];
  }
  for (auto& [label, sum] : sums) {
    for (double& value : sum) {
      value /= counts[label];
    }
  }
  return sums;
}

double distance(const Bytes& sample, const Mean& mean) {
  double squares = 0.0;
  for (std::size_t k = 0; k < sample.size(); ++k) {
    squares += std::pow(std::to_integer<int>(sample[k]) - mean[k], 2);
  }
  return squares;
}

TEST(SyntheticImagesTest, CanBeLearnedFromOneStreamAndTestedOnAnother) {
  SyntheticImageOptions options{.samples = 500, .channels = 3, .height = 9, .width = 7, .seed = 5};
  const auto means = class_means(*synthetic_images(options), 500);
  ASSERT_EQ(means.size(), 10U);
  options.stream = 1;
  const auto test = synthetic_images(options);
  EXPECT_EQ(test->shape(), (SampleShape{.sizes = {3, 9, 7}}));
  int right = 0;
  for (std::int64_t i = 0; i < 200; ++i) {
    std::int64_t label = 0;
    const Bytes sample = sample_of(*test, i, &label);
    const auto nearest =
        std::ranges::min_element(means, {}, [&](const auto& entry) { return distance(sample, entry.second); });
    right += nearest->first == label ? 1 : 0;
  }
  EXPECT_GE(right, 196);  // of 200; guessing gets 20
}

TEST(SyntheticImagesTest, SamplesDependOnTheirKeyAlone) {
  const SyntheticImageOptions options{.samples = 10, .seed = 1};
  const auto dataset = synthetic_images(options);
  EXPECT_EQ(sample_of(*dataset, 3), sample_of(*synthetic_images(options), 3));
  EXPECT_NE(sample_of(*dataset, 3), sample_of(*dataset, 4));
  EXPECT_NE(sample_of(*dataset, 3), sample_of(*synthetic_images({.samples = 10, .seed = 2}), 3));
  EXPECT_NE(sample_of(*dataset, 3), sample_of(*synthetic_images({.samples = 10, .seed = 1, .stream = 1}), 3));
}

TEST(SyntheticImagesTest, RefusesOptionsOutOfRange) {
  EXPECT_EQ(refusal([] { synthetic_images({.samples = 0}); }), "samples is 0; permitted: 1 to 9007199254740992");
  EXPECT_EQ(refusal([] { synthetic_images({.height = 1025}); }), "height is 1025; permitted: 1 to 1024");
  EXPECT_EQ(refusal([] { synthetic_images({.noise = 65}); }), "noise is 65; permitted: 0 to 64");
}

std::vector<std::uint16_t> tokens_of(const Dataset& dataset, std::int64_t index) {
  const Bytes sample = sample_of(dataset, index);
  std::vector<std::uint16_t> tokens(sample.size() / 2);
  std::memcpy(tokens.data(), sample.data(), sample.size());
  return tokens;
}

TEST(SyntheticTokensTest, EachTokenHasFourSuccessorsOf175Bits) {
  const auto dataset = synthetic_tokens({.samples = 400, .context = 256, .vocabulary = 8, .seed = 3});
  std::map<int, std::map<int, double>> follows;
  for (std::int64_t i = 0; i < dataset->size(); ++i) {
    const auto tokens = tokens_of(*dataset, i);
    ASSERT_EQ(tokens.size(), 257U);
    for (std::size_t k = 1; k < tokens.size(); ++k) {
      ++follows[tokens[k - 1]][tokens[k]];
    }
  }
  double bits = 0.0;
  for (const auto& [token, successors] : follows) {
    EXPECT_LT(token, 8);
    EXPECT_LE(successors.size(), 4U);
    const double total = std::accumulate(
        successors.begin(), successors.end(), 0.0, [](double sum, const auto& entry) { return sum + entry.second; });
    for (const auto& [next, count] : successors) {
      bits -= count * std::log2(count / total);
    }
  }
  // 1/2 * 1 + 1/4 * 2 + 2 * 1/8 * 3 bits; 102400 draws leave an error below 0.01.
  EXPECT_NEAR(bits / (400.0 * 256.0), 1.75, 0.01);
}

TEST(SyntheticTokensTest, SamplesDependOnTheirKeyAlone) {
  const auto dataset = synthetic_tokens({.seed = 1});
  EXPECT_EQ(tokens_of(*dataset, 3), tokens_of(*synthetic_tokens({.seed = 1}), 3));
  EXPECT_NE(tokens_of(*dataset, 3), tokens_of(*dataset, 4));
  EXPECT_NE(tokens_of(*dataset, 3), tokens_of(*synthetic_tokens({.seed = 1, .stream = 1}), 3));
}

TEST(SyntheticTokensTest, DocumentsAreLogNormalAndFilledUp) {
  const auto dataset = synthetic_tokens({.samples = 4000, .context = 64, .documents = true, .seed = 1});
  std::vector<std::int32_t> lengths(dataset->lengths().begin(), dataset->lengths().end());
  ASSERT_EQ(lengths.size(), 4000U);
  const auto tokens = tokens_of(*dataset, 7);
  EXPECT_EQ(std::ranges::count(tokens | std::views::drop(lengths[7] + 1), 0), 64 - lengths[7]);
  EXPECT_TRUE(std::ranges::all_of(lengths, [](std::int32_t length) { return length >= 1 && length <= 64; }));
  // Half of them below 64 / 4 = 16, and 4.2 % at 64 or above: log(4) / 0.8 = 1.73 deviations. Over 4000 draws that is
  // known within 0.8 of a median of 16 and within 1 %.
  std::ranges::sort(lengths);
  EXPECT_NEAR(lengths[2000], 16, 1);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(lengths, 64)) / 4000.0, 0.042, 0.01);
}

TEST(SyntheticTokensTest, RefusesOptionsOutOfRange) {
  EXPECT_EQ(refusal([] { synthetic_tokens({.vocabulary = 3}); }), "vocabulary is 3; permitted: 4 to 65536");
  EXPECT_EQ(refusal([] { synthetic_tokens({.context = 0}); }), "context is 0; permitted: 1 to 1048576");
}

}  // namespace
}  // namespace isochron::data
