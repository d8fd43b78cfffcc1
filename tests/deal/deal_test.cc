#include "isochron/core/deal/deal.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/allocate/allocate.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

constexpr Collation kBoth[] = {Collation::kPacked, Collation::kPadded};

struct DealCase {
  std::vector<double> works;
  std::vector<DealSlot> slots;
};

/// By worker.
struct Shares {
  std::vector<std::int64_t> samples;
  std::vector<double> works;
  double seconds = 0.0;
  bool fits = true;
};

/// What a deal amounts to, computed apart from it.
Shares shares_of(const DealCase& problem, const std::vector<std::size_t>& takers, Collation collation) {
  const std::size_t workers = problem.slots.size();
  Shares shares{.samples = std::vector<std::int64_t>(workers, 0), .works = std::vector<double>(workers, 0.0)};
  std::vector<double> largest(workers, 0.0);
  for (std::size_t i = 0; i < takers.size(); ++i) {
    const std::size_t k = takers[i];
    const double work = problem.works[i] + problem.slots[k].work_per_sample;
    ++shares.samples[k];
    shares.works[k] += work;
    largest[k] = std::max(largest[k], work);
  }
  for (std::size_t k = 0; k < workers; ++k) {
    if (collation == Collation::kPadded) {
      shares.works[k] = static_cast<double>(shares.samples[k]) * largest[k];
    }
    const DealSlot& slot = problem.slots[k];
    shares.seconds = std::max(shares.seconds, slot.offset_seconds + slot.curve.seconds(shares.works[k]));
    shares.fits = shares.fits && shares.works[k] <= slot.max_work * (1.0 + 1e-9);
  }
  return shares;
}

bool keeps_samples(const DealCase& problem, const Shares& shares) {
  for (std::size_t k = 0; k < problem.slots.size(); ++k) {
    if (shares.samples[k] < problem.slots[k].min_samples || shares.samples[k] > problem.slots[k].max_samples) {
      return false;
    }
  }
  return true;
}

Curve any_deal_curve(Random& random) {
  const double slope = 0.001 * (1.0 + 7.0 * random.uniform());
  const double fixed = 0.3 * random.uniform();
  switch (random.below(4)) {
    case 0:
      return Curve::linear(slope);
    case 1:
      return Curve::affine(fixed, slope);
    case 2:
      return Curve::saturating(fixed + 400.0 * slope, fixed, slope);
    default:
      return Curve::table(
          {{.batch = 100.0, .seconds = 100.0 * slope + fixed},
           {.batch = 300.0, .seconds = 100.0 * slope + fixed},
           {.batch = 900.0, .seconds = 900.0 * slope + fixed}});
  }
}

double any_work(Random& random) {
  switch (random.below(8)) {
    case 0:
      return 0.0;
    case 1:
      return random.below(20) == 0 ? 1e6 : 1.0;
    default:
      return std::round(std::exp(5.0 + 0.8 * random.normal()));
  }
}

DealCase any_problem(Random& random, std::size_t most_workers, std::size_t most_samples) {
  DealCase problem;
  problem.slots.resize(1 + random.below(most_workers));
  for (DealSlot& slot : problem.slots) {
    slot.curve = any_deal_curve(random);
    slot.offset_seconds = random.below(3) == 0 ? 0.2 * random.uniform() : 0.0;
    slot.work_per_sample = random.below(3) == 0 ? 100.0 * random.uniform() : 0.0;
    slot.min_samples = static_cast<std::int64_t>(random.below(3));
  }
  const auto least = std::transform_reduce(
      problem.slots.begin(), problem.slots.end(), std::int64_t{0}, std::plus<>(), [](const DealSlot& slot) {
        return slot.min_samples;
      });
  problem.works.resize(static_cast<std::size_t>(least) + random.below(most_samples + 1));
  std::ranges::generate(problem.works, [&] { return any_work(random); });
  if (random.below(2) == 0) {
    const std::int64_t mean = std::ssize(problem.works) / std::ssize(problem.slots) + 1;
    for (DealSlot& slot : problem.slots) {
      slot.max_samples = std::max(mean, slot.min_samples) + static_cast<std::int64_t>(random.below(4));
    }
  }
  return problem;
}

TEST(DealTest, EverySampleIsTakenOnceAndTheBoundsOnSamplesAreKept) {
  Random random({1});
  for (int n = 0; n < 2000; ++n) {
    const DealCase problem = any_problem(random, 12, 60);
    for (const Collation collation : kBoth) {
      const Deal deal = deal_by_cost(problem.works, problem.slots, collation);
      ASSERT_EQ(deal.takers.size(), problem.works.size());  // each by one worker, so once
      ASSERT_TRUE(std::ranges::all_of(deal.takers, [&](std::size_t k) { return k < problem.slots.size(); }));
      const Shares shares = shares_of(problem, deal.takers, collation);
      ASSERT_TRUE(keeps_samples(problem, shares)) << "case " << n;
      ASSERT_TRUE(deal.fits);
      if (std::ranges::any_of(problem.works, [](double work) { return work > 0.0; })) {
        ASSERT_NEAR(deal.seconds, shares.seconds, 1e-9 * shares.seconds) << "case " << n;
      }
      ASSERT_EQ(deal.takers, deal_by_cost(problem.works, problem.slots, collation).takers);
    }
  }
}

/// The best of all deals, if any keeps the bounds.
std::optional<double> best_of_all(const DealCase& problem, Collation collation) {
  std::optional<double> best;
  std::vector<std::size_t> takers(problem.works.size(), 0);
  for (;;) {
    const Shares shares = shares_of(problem, takers, collation);
    if (keeps_samples(problem, shares) && shares.fits) {
      best = std::min(best.value_or(std::numeric_limits<double>::infinity()), shares.seconds);
    }
    std::size_t i = 0;
    while (i < takers.size() && ++takers[i] == problem.slots.size()) {
      takers[i++] = 0;
    }
    if (i == takers.size()) {
      return best;
    }
  }
}

TEST(DealTest, SmallDealsAreTheBestOfAllAndKeepTheBoundsOnWorkIfAnyDealDoes) {
  Random random({2});
  int bounded = 0;
  int impossible = 0;
  for (int n = 0; n < 400; ++n) {
    DealCase problem = any_problem(random, 3, 3);
    const double total = std::accumulate(problem.works.begin(), problem.works.end(), 0.0);
    if (problem.works.empty() || total == 0.0) {
      continue;
    }
    const bool bound = random.below(2) == 0;
    for (DealSlot& slot : problem.slots) {
      slot.max_work = bound ? (0.3 + random.uniform()) * total : slot.max_work;
    }
    for (const Collation collation : kBoth) {
      const std::optional<double> best = best_of_all(problem, collation);
      const Deal deal = deal_by_cost(problem.works, problem.slots, collation);
      ASSERT_EQ(deal.fits, best.has_value()) << "case " << n << " " << name_of(kCollationNames, collation);
      ASSERT_TRUE(keeps_samples(problem, shares_of(problem, deal.takers, collation)));
      if (best) {
        ASSERT_NEAR(deal.seconds, *best, 2e-7 * *best) << "case " << n << " " << name_of(kCollationNames, collation);
      }
      bounded += bound && best ? 1 : 0;
      impossible += best ? 0 : 1;
    }
  }
  EXPECT_GT(bounded, 50);
  EXPECT_GT(impossible, 20);
}

TEST(DealTest, EqualWorksAreDealtNoWorseThanByCount) {
  Random random({3});
  for (int n = 0; n < 500; ++n) {
    DealCase problem = any_problem(random, 16, 200);
    const double work = n % 5 == 0 ? 0.0 : 1.0 + std::floor(300.0 * random.uniform());
    std::ranges::fill(problem.works, work);
    std::vector<Slot> slots;
    for (const DealSlot& slot : problem.slots) {
      // A worker takes work + work_per_sample for each; the allocator counts samples. Works of nothing count as 1.
      slots.push_back(
          {.curve = slot.curve.in_units_of((work == 0.0 ? 1.0 : work) + slot.work_per_sample),
           .offset_seconds = slot.offset_seconds,
           .min_batch = slot.min_samples,
           .max_batch = slot.max_samples});
    }
    if (problem.works.empty()) {
      continue;
    }
    const double by_count = allocate(slots, std::ssize(problem.works)).seconds;
    for (const Collation collation : kBoth) {
      const Deal deal = deal_by_cost(problem.works, problem.slots, collation);
      DealCase same = problem;
      std::ranges::fill(same.works, work == 0.0 ? 1.0 : work);
      const Shares shares = shares_of(same, deal.takers, collation);
      ASSERT_LE(shares.seconds, by_count * (1.0 + 1e-9)) << "case " << n << " " << name_of(kCollationNames, collation);
    }
  }
}

/// As the study of lengths has it: log-normal lengths, speeds up to 1:8, half a mean sample of fixed cost.
DealCase language_case(Random& random, std::size_t workers, std::size_t samples, bool attention) {
  DealCase problem{.works = std::vector<double>(samples), .slots = std::vector<DealSlot>(workers)};
  for (double& work : problem.works) {
    const double length = std::clamp(std::round(std::exp(5.0 + 0.8 * random.normal())), 8.0, 2048.0);
    work = attention ? length + length * length / 2048.0 : length;
  }
  const double mean = std::accumulate(problem.works.begin(), problem.works.end(), 0.0) / static_cast<double>(samples);
  for (DealSlot& slot : problem.slots) {
    const double seconds = 1e-4 * std::exp2(3.0 * random.uniform());
    slot = {.curve = Curve::affine(0.5 * mean * seconds, seconds), .min_samples = 1};
  }
  return problem;
}

TEST(DealTest, PackedDealsAreNearTheBoundOfDivisibleSamples) {
  const auto check = [](std::size_t workers, std::size_t samples, double permitted) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      for (const bool attention : {false, true}) {
        Random random({4, seed, workers, samples});
        const DealCase problem = language_case(random, workers, samples, attention);
        const Deal deal = deal_by_cost(problem.works, problem.slots, Collation::kPacked);
        EXPECT_LE(deal.seconds, permitted * deal.bound_seconds)
            << workers << " workers, " << samples << " samples, seed " << seed;
        EXPECT_GE(deal.seconds, deal.bound_seconds * (1.0 - 1e-5));
      }
    }
  };
  for (const std::size_t workers : {4U, 8U, 16U, 64U, 256U}) {
    check(workers, 8 * workers, 1.01);
    check(workers, 16 * workers, 1.002);
  }
}

TEST(DealTest, PaddedDealsLeaveNobodyWithWhatIsLeftOver) {
  // Filled one after the other, the last worker would get a tenth of its share or less in some of these.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random({6, seed});
    DealCase problem = language_case(random, 64, 1024, false);
    for (std::size_t k = 0; k < problem.slots.size(); ++k) {
      problem.slots[k].curve = Curve::linear(1e-4 * std::exp2(3.0 * static_cast<double>(k) / 63.0));
    }
    const Deal deal = deal_by_cost(problem.works, problem.slots, Collation::kPadded);
    for (std::size_t k = 0; k < problem.slots.size(); ++k) {
      EXPECT_GT(problem.slots[k].curve.seconds(deal.works[k]), 0.5 * deal.seconds) << "seed " << seed;
    }
  }
}

TEST(DealTest, ByCostIsFasterThanByCountAndThanBalancedLengths) {
  // What samples in the order drawn, as many as the speeds say, cost: 1.3 to 2.7 times as much (12 seeds).
  double by_count = 0.0;
  double by_length = 0.0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random({5, seed});
    const DealCase problem = language_case(random, 16, 256, false);
    const Deal deal = deal_by_cost(problem.works, problem.slots, Collation::kPacked);
    const double mean = std::accumulate(problem.works.begin(), problem.works.end(), 0.0) / 256.0;
    std::vector<Slot> counted;
    std::vector<DealSlot> equal(16, {.curve = Curve::linear(1.0)});
    for (const DealSlot& slot : problem.slots) {
      counted.push_back({.curve = slot.curve.in_units_of(mean), .min_batch = 1});
    }
    std::vector<std::size_t> takers;
    const std::vector<std::int64_t> split = allocate(counted, 256).batch_sizes;
    for (std::size_t k = 0; k < split.size(); ++k) {
      takers.insert(takers.end(), static_cast<std::size_t>(split[k]), k);
    }
    by_count += shares_of(problem, takers, Collation::kPacked).seconds / deal.seconds / 12.0;
    const Deal as_if_equal = deal_by_cost(problem.works, equal, Collation::kPacked);
    by_length += shares_of(problem, as_if_equal.takers, Collation::kPacked).seconds / deal.seconds / 12.0;
  }
  EXPECT_GT(by_count, 1.3);
  EXPECT_LT(by_count, 2.0);
  EXPECT_GT(by_length, 1.8);
}

TEST(DealTest, AGiantIsTheBestWorkersAloneAndTheOthersShareTheRest) {
  // 1000 on the worker of 1 second per unit; the 30 ones in 1:2 on the others, of 2 and 4 seconds: 20 and 10.
  std::vector<double> works(31, 1.0);
  works[17] = 1000.0;
  const std::vector<DealSlot> slots{
      {.curve = Curve::linear(2.0)}, {.curve = Curve::linear(1.0)}, {.curve = Curve::linear(4.0)}};
  const Deal deal = deal_by_cost(works, slots, Collation::kPacked);
  EXPECT_EQ(deal.takers[17], 1U);
  EXPECT_DOUBLE_EQ(deal.seconds, 1000.0);
  EXPECT_DOUBLE_EQ(deal.bound_seconds, 1000.0);
  EXPECT_EQ(deal_by_cost(works, slots, Collation::kPadded).takers[17], 1U);
}

TEST(DealTest, AFixedCostPerSampleCounts) {
  // Ten samples of work 1 and one of 10. If a sample costs nothing by itself, each of two equal workers gets half the
  // work: the long one alone. With 4 more a sample, 14 + 5 n and 5 (10 - n) meet at n = 3.6: 3 or 4 short ones more.
  std::vector<double> works(11, 1.0);
  works[0] = 10.0;
  std::vector<DealSlot> slots(2, {.curve = Curve::linear(1.0)});
  Deal deal = deal_by_cost(works, slots, Collation::kPacked);
  EXPECT_EQ(std::ranges::count(deal.takers, deal.takers[0]), 1);
  for (DealSlot& slot : slots) {
    slot.work_per_sample = 4.0;
  }
  deal = deal_by_cost(works, slots, Collation::kPacked);
  EXPECT_THAT(std::ranges::count(deal.takers, deal.takers[0]), testing::AnyOf(4, 5));
  EXPECT_DOUBLE_EQ(deal.seconds, 34.0);  // 14 + 4 x 5 against 6 x 5
}

TEST(DealTest, PaddedSharesAreRunsOfLikeLength) {
  // Two equal workers, lengths 100 and 10: ten short ones together cost as much as one long one.
  const std::vector<double> works{10, 10, 100, 10, 10, 10, 10, 10, 10, 10, 10};
  const std::vector<DealSlot> slots(2, {.curve = Curve::linear(1.0)});
  const Deal deal = deal_by_cost(works, slots, Collation::kPadded);
  EXPECT_EQ(std::ranges::count(deal.takers, deal.takers[2]), 1);
  EXPECT_DOUBLE_EQ(deal.seconds, 100.0);
  EXPECT_THAT(deal.works, testing::UnorderedElementsAre(100.0, 100.0));
}

TEST(DealTest, MemoryComesBeforeTime) {
  // The fast worker holds 3 units of work, so the slow one takes the rest, though it takes ten times as long.
  const std::vector<double> works(10, 1.0);
  const std::vector<DealSlot> slots{
      {.curve = Curve::linear(1.0), .max_work = 3.0}, {.curve = Curve::linear(10.0), .max_work = 100.0}};
  for (const Collation collation : kBoth) {
    const Deal deal = deal_by_cost(works, slots, collation);
    EXPECT_TRUE(deal.fits);
    EXPECT_EQ(deal.works[0], 3.0);
  }
}

TEST(DealTest, ASampleThatNobodyHoldsIsDealtAllTheSameAndSaidToBe) {
  const std::vector<double> works{5.0, 1.0, 1.0};
  const std::vector<DealSlot> slots{
      {.curve = Curve::linear(1.0), .max_work = 2.0}, {.curve = Curve::linear(1.0), .max_work = 4.0}};
  for (const Collation collation : kBoth) {
    const Deal deal = deal_by_cost(works, slots, collation);
    EXPECT_FALSE(deal.fits);
    EXPECT_EQ(deal.takers.size(), 3U);
  }
}

std::string refusal_of_deal(const std::vector<double>& works, const std::vector<DealSlot>& slots) {
  try {
    (void)deal_by_cost(works, slots, Collation::kPacked);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(DealTest, BadWorksAndBoundsAreRefused) {
  const std::vector<DealSlot> one{{.curve = Curve::linear(1.0)}};
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(refusal_of_deal({1.0, bad}, one), testing::HasSubstr("work of sample 1 of the step")) << bad;
  }
  EXPECT_THAT(refusal_of_deal({1.0}, {}), testing::HasSubstr("no worker"));
  EXPECT_THAT(refusal_of_deal({1.0}, {{.min_samples = 2}}), testing::HasSubstr("permitted: 2 to 1"));
  EXPECT_THAT(refusal_of_deal({1.0, 1.0}, {{.max_samples = 1}}), testing::HasSubstr("permitted: 0 to 1"));
  EXPECT_THAT(refusal_of_deal({1.0}, {{.work_per_sample = -1.0}}), testing::HasSubstr("work per sample is -1"));
  EXPECT_THAT(refusal_of_deal({1.0}, {{.max_work = 0.0}}), testing::HasSubstr("max work is 0"));
  EXPECT_EQ(refusal_of_deal({}, one), "");
}

}  // namespace
}  // namespace isochron
