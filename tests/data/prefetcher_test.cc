#include "isochron/data/prefetcher.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <vector>

#include "support.h"
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron::data {
namespace {

constexpr std::int64_t kSampleBytes = 8;

/// Samples that hold their own position, with a book of how often each was fetched.
class Source {
 public:
  std::int64_t fetch(std::int64_t position, std::span<std::byte> out) {
    {
      const std::lock_guard lock(mutex_);
      EXPECT_TRUE(under_way_.insert(position).second) << "twice at a time: " << position;
      ++counts_[position];
      ++total_;
    }
    changed_.notify_all();
    std::memcpy(out.data(), &position, sizeof position);
    const std::lock_guard lock(mutex_);
    under_way_.erase(position);
    if (broken_.contains(position)) {
      throw std::runtime_error("sample " + std::to_string(position) + " is broken");
    }
    return -position;
  }

  Prefetcher::Fetch function() {
    return [this](std::int64_t position, std::span<std::byte> out) { return fetch(position, out); };
  }

  void set_broken(std::set<std::int64_t> positions) {
    const std::lock_guard lock(mutex_);
    broken_ = std::move(positions);
  }

  void wait_until_begun(std::int64_t position) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return counts_.contains(position); });
  }

  std::int64_t total() {
    const std::lock_guard lock(mutex_);
    return total_;
  }

  std::map<std::int64_t, int> counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::int64_t> under_way_;
  std::set<std::int64_t> broken_;
  std::map<std::int64_t, int> counts_;
  std::int64_t total_ = 0;
};

std::vector<std::int64_t> take(Prefetcher& prefetcher, const Interval& slice) {
  const auto count = static_cast<std::size_t>(slice.size());
  std::vector<std::int64_t> samples(count);
  std::vector<std::int64_t> labels(count);
  prefetcher.take(slice, std::as_writable_bytes(std::span(samples)), labels);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(labels[i], -samples[i]);
  }
  return samples;
}

std::vector<std::int64_t> positions(const Interval& slice) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(slice.size()));
  std::iota(result.begin(), result.end(), slice.first);
  return result;
}

void plan(Prefetcher& prefetcher, std::initializer_list<Interval> slices) {
  prefetcher.plan(std::vector<Interval>(slices));
}

TEST(PrefetcherTest, GivesSlicesInOrderWhetherPlannedOrNot) {
  for (const std::int64_t threads : {0, 1, 4}) {
    Source source;
    Prefetcher prefetcher(source.function(), kSampleBytes, {.threads = threads, .capacity = 16});
    EXPECT_EQ(take(prefetcher, {100, 140}), positions({100, 140}));
    plan(prefetcher, {{0, 10}, {20, 30}});
    EXPECT_EQ(take(prefetcher, {0, 10}), positions({0, 10}));
    EXPECT_EQ(take(prefetcher, {18, 32}), positions({18, 32}));
    EXPECT_EQ(take(prefetcher, {5, 5}), positions({5, 5}));
  }
}

TEST(PrefetcherTest, AResizeCostsOnlyTheDifference) {
  Source source;
  Prefetcher prefetcher(source.function(), kSampleBytes, {.threads = 2, .capacity = 64});
  plan(prefetcher, {{0, 8}, {16, 24}});
  take(prefetcher, {0, 8});
  source.wait_until_begun(23);
  // The slice grows by two samples at its start and loses two at its end.
  plan(prefetcher, {{14, 22}, {30, 38}});
  EXPECT_EQ(take(prefetcher, {14, 22}), positions({14, 22}));
  // The two samples that were left over are wanted after all.
  EXPECT_EQ(take(prefetcher, {22, 24}), positions({22, 24}));
  for (const auto& [position, count] : source.counts()) {
    EXPECT_EQ(count, 1) << position;
  }
}

TEST(PrefetcherTest, KeepsWhatLeftThePlanUntilItsPlaceIsNeeded) {
  Source source;
  Prefetcher prefetcher(source.function(), kSampleBytes, {.threads = 1, .capacity = 9});
  plan(prefetcher, {{0, 8}, {50, 51}});
  source.wait_until_begun(50);  // so the eight before it are ready, by the only thread
  plan(prefetcher, {{100, 104}});
  // Five of nine places are kept: the four lowest positions made room.
  EXPECT_EQ(take(prefetcher, {4, 8}), positions({4, 8}));
  EXPECT_EQ(take(prefetcher, {100, 104}), positions({100, 104}));
  EXPECT_EQ(source.total(), 13);
  EXPECT_EQ(take(prefetcher, {0, 4}), positions({0, 4}));
  EXPECT_EQ(source.total(), 17);
}

TEST(PrefetcherTest, MakesRoomByWhatIsNotPlanned) {
  Source source;
  Prefetcher prefetcher(source.function(), kSampleBytes, {.threads = 1, .capacity = 9});
  plan(prefetcher, {{0, 8}, {50, 51}});
  source.wait_until_begun(50);
  plan(prefetcher, {{0, 4}, {100, 104}});  // 4 to 7 make room
  EXPECT_EQ(take(prefetcher, {0, 4}), positions({0, 4}));
  EXPECT_EQ(take(prefetcher, {100, 104}), positions({100, 104}));
  EXPECT_EQ(source.total(), 13);
}

TEST(PrefetcherTest, HoldsNoMoreThanItsCapacity) {
  Source source;
  {
    Prefetcher prefetcher(source.function(), kSampleBytes, {.threads = 1, .capacity = 8});
    plan(prefetcher, {{0, 1'000'000'000'000}});
    source.wait_until_begun(7);
    plan(prefetcher, {{0, 1'000'000'000'000}});
  }
  EXPECT_EQ(source.total(), 8);
}

TEST(PrefetcherTest, HandsExceptionsOfItsThreadsToTake) {
  Source source;
  source.set_broken({5});
  Prefetcher prefetcher(source.function(), kSampleBytes, {.threads = 1, .capacity = 16});
  plan(prefetcher, {{0, 10}});
  source.wait_until_begun(9);
  EXPECT_EQ(take(prefetcher, {0, 5}), positions({0, 5}));  // not touched by it
  try {
    take(prefetcher, {5, 10});
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "sample 5 is broken");
  }
  source.set_broken({});
  EXPECT_EQ(take(prefetcher, {5, 10}), positions({5, 10}));
}

TEST(PrefetcherTest, LetsExceptionsOfTheCallersOwnFetchesThrough) {
  Source source;
  source.set_broken({3});
  Prefetcher prefetcher(source.function(), kSampleBytes, {.threads = 0});
  EXPECT_THROW(take(prefetcher, {0, 5}), std::runtime_error);
  EXPECT_EQ(take(prefetcher, {4, 9}), positions({4, 9}));
}

TEST(PrefetcherTest, EndsWithWorkOutstanding) {
  Source source;
  {
    Prefetcher prefetcher(source.function(), kSampleBytes, {.threads = 4, .capacity = 1 << 20});
    plan(prefetcher, {{0, 1 << 20}});
    source.wait_until_begun(0);
  }
  EXPECT_GE(source.total(), 1);
}

TEST(PrefetcherTest, RefusesOptionsOutOfRange) {
  Source source;
  const auto refusal_of = [&](std::int64_t bytes, const PrefetchOptions& options) {
    return refusal([&] { const Prefetcher prefetcher(source.function(), bytes, options); });
  };
  EXPECT_EQ(refusal_of(8, {.threads = -1}), "prefetch threads is -1; permitted: 0 to 256");
  EXPECT_EQ(refusal_of(8, {.capacity = 0}), "prefetch capacity is 0; permitted: 1 to 16777216");
  EXPECT_EQ(refusal_of(0, {}), "sample bytes is 0; permitted: 1 to 4294967296");
}

TEST(PrefetcherTest, ChecksTheCallersMemory) {
  Source source;
  Prefetcher prefetcher(source.function(), kSampleBytes, {});
  std::vector<std::int64_t> labels(2);
  Bytes out(8);
  EXPECT_THROW(prefetcher.take({0, 2}, out, labels), InvariantError);
}

// Slices jump about, plans are right, wrong or missing, samples break: what take() gives is always exact.
RC_GTEST_PROP(PrefetcherTest, IsExactUnderRandomResizes, (std::uint64_t seed)) {
  Random random({seed});
  Source source;
  Prefetcher prefetcher(
      source.function(),
      kSampleBytes,
      {.threads = static_cast<std::int64_t>(random.below(4)),
       .capacity = 1 + static_cast<std::int64_t>(random.below(64))});
  const auto draw = [&](std::uint64_t bound) { return static_cast<std::int64_t>(random.below(bound)); };
  for (std::int64_t start = 0; start < 1280; start += 32) {
    const Interval slice{start + draw(8), start + 8 + draw(24)};
    if (draw(4) != 0) {
      plan(prefetcher, {slice, {start + 32 + draw(8), start + 40 + draw(24)}, {start + 64, start + 80}});
    }
    const bool breaks = draw(8) == 0;
    source.set_broken(breaks ? std::set<std::int64_t>{start + draw(32)} : std::set<std::int64_t>{});
    for (bool done = false; !done;) {
      try {
        RC_ASSERT(take(prefetcher, slice) == positions(slice));
        done = true;
      } catch (const std::runtime_error&) {
        source.set_broken({});
      }
    }
  }
}

}  // namespace
}  // namespace isochron::data
