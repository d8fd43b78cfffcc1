// The guarantee as a whole: each sample exactly once per epoch, whatever happens to the workers.
#include <cstdint>
#include <map>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "isochron/core/random/random.h"
#include "isochron/core/sample/ledger.h"
#include "isochron/core/sample/sampler.h"

namespace isochron {
namespace {

/// `total` cut at random into `parts`, some of them empty perhaps.
std::vector<std::int64_t> random_split(std::int64_t total, std::uint64_t parts, Random& random) {
  std::vector<std::int64_t> split(parts);
  for (std::int64_t i = 0; i < total; ++i) {
    ++split[random.below(parts)];
  }
  return split;
}

/// One epoch of a job in which workers come and go, steps fail half way and the whole job is restarted from a
/// checkpoint. Counts how often each sample was really used.
class Job {
 public:
  Job(const SamplerOptions& options, std::uint64_t seed)
      : options_(options), sampler_(options), ledger_(sampler_.samples_per_epoch()), random_({seed}) {}

  void run_epoch() {
    while (sampler_.state().epoch == 0) {
      const auto split = random_split(options_.global_batch, 1 + random_.below(6), random_);
      const std::vector<Interval> slices = sampler_.slices(split);
      for (std::size_t worker = 0; worker < slices.size(); ++worker) {
        ledger_.stage({.positions = slices[worker], .worker = worker});
      }
      if (random_.below(4) == 0) {
        ledger_.discard();  // a worker was killed: the step did not happen, the rest deal it anew
      } else {
        finish(slices);
      }
      if (random_.below(8) == 0) {
        restart();
      }
    }
  }

  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  [[nodiscard]] const std::map<std::int64_t, int>& uses() const { return uses_; }

 private:
  void finish(const std::vector<Interval>& slices) {
    for (const Interval& slice : slices) {
      for (std::int64_t position = slice.first; position < slice.last; ++position) {
        ++uses_[sampler_.sample_at(position)];
      }
    }
    ledger_.commit();
    sampler_.advance();
  }

  void restart() {
    SamplerState state = sampler_.state();
    SamplerState loaded;
    restore_state(loaded, State::parse(save_state(state).serialize()));
    sampler_ = Sampler(options_);
    sampler_.restore(loaded);
    const State book = save_state(ledger_);
    ledger_ = Ledger(0);
    restore_state(ledger_, book);
  }

  SamplerOptions options_;
  Sampler sampler_;
  Ledger ledger_;
  Random random_;
  std::map<std::int64_t, int> uses_;
};

RC_GTEST_PROP(ExactlyOnceTest, HoldsUnderRandomResizesKillsAndRestarts, (std::uint64_t seed, bool drop)) {
  const auto size = *rc::gen::inRange<std::int64_t>(1, 500);
  const auto batch = *rc::gen::inRange<std::int64_t>(1, drop ? size + 1 : 600);
  Job job(
      {.dataset_size = size,
       .global_batch = batch,
       .seed = seed,
       .last_batch = drop ? LastBatch::kDrop : LastBatch::kKeep},
      seed);
  job.run_epoch();
  RC_ASSERT(job.ledger().complete());
  RC_ASSERT(static_cast<std::int64_t>(job.uses().size()) == (drop ? size / batch * batch : size));
  for (const auto& [sample, count] : job.uses()) {
    RC_ASSERT(count == 1);
  }
}

TEST(ExactlyOnceTest, IsDisprovedByAStepThatIsCountedThoughItFailed) {
  Sampler sampler({.dataset_size = 64, .global_batch = 16});
  Ledger ledger(64);
  const auto step = [&] {
    const std::vector<Interval> slices = sampler.slices(std::vector<std::int64_t>{10, 6});
    ledger.stage({.positions = slices[0], .worker = 0});
    ledger.stage({.positions = slices[1], .worker = 1});
    ledger.commit();
  };
  step();  // and no advance: the same positions once more
  for (int i = 0; i < 4; ++i) {
    step();
    sampler.advance();
  }
  EXPECT_TRUE(ledger.gaps().empty());
  EXPECT_FALSE(ledger.complete());
  EXPECT_EQ(ledger.duplicates(), (std::vector<Use>{{{0, 10}, 0}, {{10, 16}, 1}}));
}

TEST(ExactlyOnceTest, IsDisprovedByASampleThatIsLost) {
  Sampler sampler({.dataset_size = 64, .global_batch = 16});
  Ledger ledger(64);
  for (int i = 0; i < 4; ++i) {
    Interval slice = sampler.slices(std::vector<std::int64_t>{16}).front();
    if (i == 2) {
      --slice.last;
    }
    ledger.stage({.positions = slice});
    ledger.commit();
    sampler.advance();
  }
  EXPECT_FALSE(ledger.complete());
  EXPECT_EQ(ledger.gaps(), (std::vector<Interval>{{47, 48}}));
}

}  // namespace
}  // namespace isochron
