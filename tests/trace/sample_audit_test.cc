#include "isochron/core/trace/sample_audit.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isochron/core/random/random.h"
#include "isochron/core/sample/sampler.h"

namespace isochron {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kBatch = 128;
constexpr std::int64_t kSamples = 1'000;  // seven whole steps and one of 104

/// Feeds an auditor, a line per record.
class Log {
 public:
  explicit Log(const RunHeader& header = {.global_batch = kBatch, .samples_per_epoch = kSamples}) : auditor_(header) {}

  /// Two workers; the first gets `first` samples, or a quarter.
  void step(
      std::int64_t number,
      std::int64_t epoch,
      std::int64_t position,
      std::int64_t samples = kBatch,
      std::optional<std::int64_t> first = {}) {
    const std::int64_t share = first.value_or(samples / 4);
    auditor_.add(
        StepRecord{
            .step = number,
            .epoch = epoch,
            .position = position,
            .workers = {{.id = 0, .batch = share}, {.id = 7, .batch = samples - share}}},
        ++line_);
  }
  /// Steps `from` up to `to` of a run in which nothing happens.
  void steps(std::int64_t from, std::int64_t to) {
    for (std::int64_t number = from; number < to; ++number) {
      const std::int64_t position = number % 8 * kBatch;
      step(number, number / 8, position, std::min(kBatch, kSamples - position));
    }
  }
  void event(const std::string& name, std::int64_t step) {
    auditor_.add(EventRecord{.step = step, .event = name}, ++line_);
  }
  void add(const StepRecord& record) { auditor_.add(record, ++line_); }
  void add_update(const UpdateRecord& record) { auditor_.add(record, ++line_); }

  SampleAudit finish() { return auditor_.finish(); }

 private:
  SampleAuditor auditor_;
  std::int64_t line_ = 1;  // the header's
};

TEST(SampleAuditTest, ProvesARunInWhichNothingHappens) {
  Log log;
  log.steps(0, 16);
  const SampleAudit audit = log.finish();
  EXPECT_TRUE(audit.proven());
  EXPECT_EQ(audit.steps, 16);
  ASSERT_EQ(audit.epochs.size(), 2U);
  for (const EpochAudit& epoch : audit.epochs) {
    EXPECT_TRUE(epoch.finished);
    EXPECT_EQ(epoch.used, kSamples);
    EXPECT_TRUE(epoch.exact());
  }
}

TEST(SampleAuditTest, AnUnfinishedLastEpochIsNoFault) {
  Log log;
  log.steps(0, 11);
  const SampleAudit audit = log.finish();
  EXPECT_TRUE(audit.proven());
  EXPECT_EQ(audit.finished_epochs(), 1);
  EXPECT_FALSE(audit.epochs.at(1).finished);
  EXPECT_EQ(audit.epochs.at(1).used, 3 * kBatch);
  EXPECT_EQ(audit.epochs.at(1).missing, 0);
}

TEST(SampleAuditTest, ARollbackOrAResumeTakesStepsBack) {
  Log log;
  log.steps(0, 12);
  log.event("death", 12);
  log.event("rollback", 5);  // into the epoch before
  log.steps(5, 14);
  log.event("resume", 14);
  log.steps(14, 15);
  log.event("resume", 10);
  log.steps(10, 16);
  const SampleAudit audit = log.finish();
  EXPECT_TRUE(audit.proven());
  EXPECT_EQ(audit.steps, 16);
  EXPECT_EQ(audit.taken_back, 7 + 5);
  EXPECT_EQ(audit.events.at("resume"), 2);
  EXPECT_EQ(audit.events.at("death"), 1);
}

TEST(SampleAuditTest, SaysWhichSamplesWereUsedAgainAndByWhom) {
  Log log;
  log.steps(0, 2);
  log.step(2, 0, kBatch + 64);  // the second half of step 1 again; worker 0 takes 32, worker 7 the rest
  const SampleAudit audit = log.finish();
  EXPECT_FALSE(audit.proven());
  const EpochAudit& epoch = audit.epochs.at(0);
  EXPECT_EQ(epoch.doubled, 64);
  EXPECT_EQ(epoch.used, 2 * kBatch + 64);
  ASSERT_EQ(epoch.twice.size(), 2U);
  EXPECT_EQ(epoch.twice[0].line, 4);
  EXPECT_EQ(epoch.twice[0].step, 2);
  EXPECT_EQ(epoch.twice[0].worker, 0U);
  EXPECT_EQ(epoch.twice[0].positions, (Interval{.first = 192, .last = 224}));
  EXPECT_EQ(epoch.twice[1].worker, 7U);
  EXPECT_EQ(epoch.twice[1].positions, (Interval{.first = 224, .last = 256}));
}

TEST(SampleAuditTest, SaysWhichSamplesWereLeftOut) {
  Log log;
  log.steps(0, 2);
  log.step(2, 0, 3 * kBatch);
  const SampleAudit audit = log.finish();
  EXPECT_FALSE(audit.proven());
  EXPECT_EQ(audit.epochs.at(0).missing, kBatch);
  ASSERT_EQ(audit.epochs.at(0).gaps.size(), 1U);
  EXPECT_EQ(audit.epochs.at(0).gaps[0].after_step, 1);
  EXPECT_EQ(audit.epochs.at(0).gaps[0].positions, (Interval{.first = 256, .last = 384}));
}

TEST(SampleAuditTest, AnEpochLeftEarlyMissesItsEnd) {
  Log log;
  log.steps(0, 7);
  log.step(7, 1, 0);
  const SampleAudit audit = log.finish();
  EXPECT_FALSE(audit.proven());
  EXPECT_TRUE(audit.epochs.at(0).finished);
  EXPECT_EQ(audit.epochs.at(0).missing, 104);
}

TEST(SampleAuditTest, AnEpochThatIsNotThereIsNoticed) {
  Log log;
  log.step(0, 2, 0);
  log.step(1, 5, 0);
  const SampleAudit audit = log.finish();
  ASSERT_EQ(audit.finding_count, 2);
  EXPECT_EQ(audit.findings[0].words, "no step of epoch 0 to 1 is in the log");
  EXPECT_EQ(audit.findings[1].words, "no step of epoch 3 to 4 is in the log");
}

/// The only finding of a log with something wrong in it.
std::string finding(Log& log) {
  const SampleAudit audit = log.finish();
  EXPECT_FALSE(audit.proven());
  EXPECT_EQ(audit.finding_count, 1);
  return audit.findings.empty() ? "" : std::to_string(audit.findings[0].line) + ": " + audit.findings[0].words;
}

TEST(SampleAuditTest, StepsComeInOrder) {
  Log skipped;
  skipped.step(0, 0, 0);
  skipped.step(2, 0, kBatch);
  EXPECT_EQ(finding(skipped), "3: step 2 comes where step 1 should");
  Log late;
  late.step(5, 0, 0);
  EXPECT_EQ(finding(late), "2: step 5 comes where step 0 should");
  Log repeated;
  repeated.step(0, 0, 0);
  repeated.step(0, 0, kBatch);
  EXPECT_EQ(finding(repeated), "3: step 0 comes where step 1 should");
  Log forward;
  forward.step(0, 0, 0);
  forward.event("rollback", 3);
  EXPECT_EQ(finding(forward), "3: rollback to step 3, but the log ends before step 1");
}

TEST(SampleAuditTest, BatchSizesAddUp) {
  Log log;
  log.step(0, 0, 0, 100);
  EXPECT_EQ(finding(log), "2: step 0: the batch sizes add up to 100, not 128");
  Log beyond;
  beyond.steps(0, 7);
  beyond.step(7, 0, 7 * kBatch, kBatch);  // only 104 are left
  EXPECT_THAT(finding(beyond), HasSubstr("the batch of worker 7, 96, does not fit the epoch's 1000 samples"));
}

TEST(SampleAuditTest, NothingIsProvenWithoutPositionsOrTheEpochsSize) {
  Log no_place;
  no_place.add({.step = 0});
  EXPECT_EQ(finding(no_place), "2: step 0 does not say which samples it used");
  Log no_size(RunHeader{.global_batch = kBatch});
  no_size.step(0, 0, 0);
  EXPECT_EQ(finding(no_size), "1: the header does not say how many samples an epoch has");
}

TEST(SampleAuditTest, AStreamIsProvenWhereItsEndsAreSaid) {
  Log log(RunHeader{.global_batch = kBatch});
  log.step(0, 0, 0);
  log.step(1, 0, kBatch, 50);
  log.event("epoch-end", 2);
  log.step(2, 1, 0);
  const SampleAudit audit = log.finish();
  EXPECT_TRUE(audit.proven());
  EXPECT_EQ(audit.finished_epochs(), 1);
  EXPECT_EQ(audit.epochs_cut_short(), 0);
  EXPECT_EQ(audit.epochs.at(0).used, kBatch + 50);
  EXPECT_FALSE(audit.epochs.at(1).finished);
}

TEST(SampleAuditTest, AStreamThatWentOnBeyondWhatWasSaidHasNoEnd) {
  Log log(RunHeader{.global_batch = kBatch});
  log.step(0, 0, 0);
  log.event("epoch-end", 1);
  log.event("resume", 1);
  log.step(1, 0, kBatch);
  log.step(2, 1, 0);
  EXPECT_EQ(finding(log), "0: nothing says where epoch 0 ended");
  Log gap(RunHeader{.global_batch = kBatch});
  gap.step(0, 0, 0);
  gap.step(1, 0, kBatch + 10);
  gap.event("epoch-end", 2);
  EXPECT_FALSE(gap.finish().proven());  // ten samples were left out
}

TEST(SampleAuditTest, AnEpochThatWasEndedEarlyIsNoFaultAndIsToldApart) {
  Log log;
  log.steps(0, 3);
  log.event("epoch-end", 3);
  log.step(3, 1, 0);
  const SampleAudit audit = log.finish();
  EXPECT_TRUE(audit.proven());
  EXPECT_EQ(audit.epochs_cut_short(), 1);
  EXPECT_EQ(audit.epochs.at(0).used, 3 * kBatch);
  Log silent;
  silent.steps(0, 3);
  silent.step(3, 1, 0);
  EXPECT_FALSE(silent.finish().proven());
}

TEST(SampleAuditTest, StepsOnOtherDataAreInAnotherLog) {
  Log log;
  log.event("other-data", 40);
  log.step(40, 0, 0);
  log.event("other-data", 50);
  log.step(50, 0, kBatch);
  EXPECT_TRUE(log.finish().proven());
}

TEST(SampleAuditTest, StepsBesideOtherDataGoOnIntoTheNextEpoch) {
  const RunHeader header{.global_batch = kBatch, .samples_per_epoch = 100, .sync = "beside"};
  Log log(header);
  log.step(0, 0, 0);       // all 100 of epoch 0, and 28 of epoch 1
  log.step(1, 1, 28, 40);  // beside a short last step
  log.event("other-data", 3);
  log.step(3, 1, 68);  // 32 of epoch 1, and 96 of epoch 2
  const SampleAudit audit = log.finish();
  EXPECT_TRUE(audit.proven());
  EXPECT_EQ(audit.finished_epochs(), 2);
  EXPECT_EQ(audit.epochs.at(2).used, 96);
  EXPECT_EQ(audit.steps, 3);

  Log again(header);
  again.step(0, 0, 0);
  again.step(1, 1, 20);  // 8 of them a second time
  EXPECT_EQ(again.finish().epochs.at(1).doubled, 8);

  Log large(header);
  large.step(0, 0, 0, kBatch + 1);
  EXPECT_THAT(large.finish().findings.at(0).words, HasSubstr("does not fit the global batch of 128 samples"));
}

TEST(SampleAuditTest, AbsurdNumbersAreFindings) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  Log log(RunHeader{.global_batch = kHuge, .samples_per_epoch = kMostPositions});
  log.add({.step = kHuge, .epoch = kHuge, .position = kHuge});
  log.add({.step = 0, .epoch = kMostPositions, .position = kMostPositions});
  log.add({.step = -1, .epoch = 0, .position = 0, .workers = {{.batch = kHuge}, {.batch = kHuge}}});
  log.add({.step = -kHuge, .epoch = 0, .position = 0, .workers = {{.batch = -kHuge}, {.batch = kHuge}}});
  for (int i = 0; i < 3'000; ++i) {  // 3000 times 2^53 would not fit
    log.add({.step = i, .epoch = kMostPositions, .position = 0, .workers = {{.batch = kMostPositions}}});
    log.event("rollback", kHuge);
  }
  const SampleAudit audit = log.finish();
  EXPECT_FALSE(audit.proven());
  EXPECT_EQ(audit.findings.size(), SampleAudit::kMostPlaces);
  EXPECT_GT(audit.finding_count, 3'000);
  EXPECT_GT(audit.epochs.back().doubled, 0);
  EXPECT_FALSE(Log(RunHeader{.samples_per_epoch = kHuge}).finish().proven());
}

TEST(SampleAuditTest, EventsOfUnknownNamesShareOne) {
  Log log;
  log.event("\x1b[31m", 0);
  log.event("something", 0);
  EXPECT_EQ(log.finish().events.at("other"), 2);
}

/// A run as the engine would log it: workers come and go, steps are lost with the state and done again.
class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed) : random_({seed}) {
    options_.dataset_size = 1 + static_cast<std::int64_t>(random_.below(5'000));
    options_.global_batch = 1 + static_cast<std::int64_t>(random_.below(300));
    options_.seed = seed;
  }

  /// The records; events first are "rollback"s.
  std::vector<std::pair<std::optional<EventRecord>, StepRecord>> records(std::int64_t count) {
    std::vector<SamplerState> places;
    Sampler sampler(options_);
    std::vector<std::pair<std::optional<EventRecord>, StepRecord>> list;
    for (std::int64_t i = 0; i < count; ++i) {
      std::optional<EventRecord> rollback;
      if (random_.below(10) == 0) {
        const auto step = static_cast<std::int64_t>(random_.below(places.size() + 1));
        rollback = EventRecord{.step = step, .event = random_.below(2) == 0 ? "rollback" : "resume"};
        if (step < std::ssize(places)) {
          sampler.restore(places[static_cast<std::size_t>(step)]);
          places.resize(static_cast<std::size_t>(step));
        }
      }
      list.emplace_back(rollback, step(sampler, std::ssize(places)));
      places.push_back(sampler.state());
      sampler.advance();
    }
    return list;
  }

  [[nodiscard]] RunHeader header() const {
    return {.global_batch = options_.global_batch, .samples_per_epoch = options_.dataset_size};
  }

 private:
  StepRecord step(const Sampler& sampler, std::int64_t number) {
    const std::size_t workers = 1 + random_.below(4);
    std::vector<std::int64_t> split(workers, 0);
    for (std::int64_t i = 0; i < options_.global_batch; ++i) {
      ++split[random_.below(workers)];
    }
    StepRecord record{.step = number, .epoch = sampler.state().epoch, .position = sampler.state().position};
    for (const Interval& slice : sampler.slices(split)) {
      record.workers.push_back({.id = record.workers.size(), .batch = slice.size()});
    }
    return record;
  }

  Random random_;
  SamplerOptions options_;
};

TEST(SampleAuditTest, ProvesWhatTheSamplerDealsWhateverHappensAndNoOtherPlaces) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    RandomRun run(seed);
    const auto records = run.records(100);
    for (const bool forged : {false, true}) {
      Log log(run.header());
      for (std::size_t i = 0; i < records.size(); ++i) {
        if (records[i].first) {
          log.event(records[i].first->event, records[i].first->step);
        }
        StepRecord step = records[i].second;
        step.position += forged && i + 1 == records.size() ? 1 : 0;  // the last step is never taken back
        log.add(step);
      }
      EXPECT_EQ(log.finish().proven(), !forged) << "seed " << seed;
    }
  }
}

// Updates of workers that are not in step: any order, any sizes.
SampleAudit asynchronous_audit(const std::vector<Interval>& updates) {
  Log log({.global_batch = kBatch, .samples_per_epoch = kSamples, .sync = "asp"});
  std::int64_t number = 0;
  for (const Interval& positions : updates) {
    log.add_update(
        {.step = number++,
         .epoch = 0,
         .position = positions.first,
         .worker = {.id = 1, .batch = positions.size()},
         .staleness = 1});
  }
  return log.finish();
}

TEST(SampleAuditTest, ProvesUpdatesInAnyOrder) {
  const SampleAudit whole = asynchronous_audit({{0, 30}, {100, 1000}, {30, 37}, {37, 100}});
  EXPECT_TRUE(whole.proven());
  EXPECT_TRUE(whole.epochs.front().finished);
  // A log that ends while others are at work.
  const SampleAudit cut = asynchronous_audit({{0, 30}, {100, 1000}});
  EXPECT_TRUE(cut.proven());
  EXPECT_FALSE(cut.epochs.front().finished);
  EXPECT_EQ(cut.epochs.front().used, 930);
  EXPECT_FALSE(asynchronous_audit({{0, 30}, {29, 1000}}).proven());
}

}  // namespace
}  // namespace isochron
