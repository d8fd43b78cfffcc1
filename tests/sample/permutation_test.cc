#include "isochron/core/sample/permutation.h"

#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "isochron/core/error.h"

namespace isochron {
namespace {

std::vector<std::int64_t> first_indices(std::int64_t size, std::uint64_t key, std::int64_t count) {
  const Permutation permutation(size, key);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  for (std::int64_t position = 0; position < count; ++position) {
    indices[static_cast<std::size_t>(position)] = permutation.index_at(position);
  }
  return indices;
}

RC_GTEST_PROP(PermutationTest, IsABijectionForAnySizeAndKey, (std::uint64_t key)) {
  const auto size = *rc::gen::inRange<std::int64_t>(1, 3000);
  const Permutation permutation(size, key);
  std::vector<bool> seen(static_cast<std::size_t>(size));
  for (std::int64_t position = 0; position < size; ++position) {
    const std::int64_t index = permutation.index_at(position);
    RC_ASSERT(index >= 0 && index < size);
    RC_ASSERT(!seen[static_cast<std::size_t>(index)]);
    seen[static_cast<std::size_t>(index)] = true;
    RC_ASSERT(permutation.position_of(index) == position);
  }
}

RC_GTEST_PROP(PermutationTest, IsInvertedByPositionOfAtAnyScale, (std::uint64_t key)) {
  const auto size = *rc::gen::inRange<std::int64_t>(1, std::numeric_limits<std::int64_t>::max());
  const auto position = *rc::gen::inRange<std::int64_t>(0, size);
  const Permutation permutation(size, key);
  const std::int64_t index = permutation.index_at(position);
  RC_ASSERT(index >= 0 && index < size);
  RC_ASSERT(permutation.position_of(index) == position);
}

TEST(PermutationTest, WorksAtTheEndsOfItsRange) {
  EXPECT_EQ(Permutation(1, 7).index_at(0), 0);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const Permutation largest(most, 7);
  for (const std::int64_t position : {std::int64_t{0}, most / 2, most - 1}) {
    EXPECT_EQ(largest.position_of(largest.index_at(position)), position);
  }
}

TEST(PermutationTest, GivesTheSameOrderOnEveryPlatform) {
  // Computed apart from this code, with the integers of another language.
  EXPECT_EQ(first_indices(10, 0, 10), (std::vector<std::int64_t>{8, 7, 4, 2, 3, 6, 5, 9, 0, 1}));
  EXPECT_EQ(
      first_indices(60'000, 42, 10),
      (std::vector<std::int64_t>{1611, 50306, 19724, 34306, 19018, 12192, 26072, 57565, 21807, 43036}));
  EXPECT_EQ(
      first_indices(1'000'000'000, 42, 10),
      (std::vector<std::int64_t>{
          7315715, 279606684, 589470583, 546423671, 71866847, 245154547, 393885931, 47386962, 276096471, 981719567}));
}

/// How far chi-square over equally likely cells lies above its mean, in standard deviations.
template <class Cell>
double excess(const std::map<Cell, int>& counts, double cells, double draws) {
  const double expected = draws / cells;
  double chi_square = (cells - static_cast<double>(counts.size())) * expected;
  for (const auto& [cell, count] : counts) {
    chi_square += (count - expected) * (count - expected) / expected;
  }
  return (chi_square - (cells - 1.0)) / std::sqrt(2.0 * (cells - 1.0));
}

TEST(PermutationTest, ReachesEveryOrderOfAFewElementsEquallyOften) {
  const std::map<std::int64_t, double> factorials{{2, 2.0}, {3, 6.0}, {4, 24.0}, {5, 120.0}};
  for (const auto& [size, orders] : factorials) {
    constexpr int kKeys = 24'000;
    std::map<std::vector<std::int64_t>, int> counts;
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      ++counts[first_indices(size, key, size)];
    }
    EXPECT_LT(excess(counts, orders, kKeys), 5.0) << size;
  }
}

TEST(PermutationTest, SpreadsNeighboursEvenly) {
  // Where positions 0 and 1 go together: 64 x 63 cells with 12 keys each.
  constexpr int kKeys = 64 * 63 * 12;
  std::map<std::pair<std::int64_t, std::int64_t>, int> counts;
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const Permutation permutation(64, key);
    ++counts[{permutation.index_at(0), permutation.index_at(1)}];
  }
  EXPECT_LT(excess(counts, 64.0 * 63.0, kKeys), 5.0);
}

TEST(PermutationTest, RefusesWhatIsOutOfRange) {
  EXPECT_THROW(Permutation(0, 1), std::invalid_argument);
  EXPECT_THROW(Permutation(-3, 1), std::invalid_argument);
  const Permutation permutation(5, 1);
  for (const std::int64_t outside : {-1, 5}) {
    EXPECT_THROW((void)permutation.index_at(outside), InvariantError);
    EXPECT_THROW((void)permutation.position_of(outside), InvariantError);
  }
}

}  // namespace
}  // namespace isochron
