#include "isochron/core/replica/step_report.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/failure.h"
#include <gtest/gtest.h>

#include "isochron/core/random/random.h"

namespace isochron {
namespace {

using Limits = std::numeric_limits<double>;

const std::vector<Worker> kTwo{{.id = 4, .name = "a"}, {.id = 7, .name = "b"}};

TEST(StepReportCodecTest, EveryFieldSurvivesSinglePrecisionBitByBit) {
  StepReport report;
  report.batch = (std::int64_t{1} << 48) + 1;  // a float holds 24 bits
  report.items = 1e300;
  report.start = 86'400.0 + 0x1p-36;  // a day of seconds, to the last bit of a double
  report.seconds = Limits::denorm_min();
  report.warm = false;
  report.waited = -0.0;
  report.sync_points = -1;
  report.usage.cpu = Limits::quiet_NaN();
  report.usage.memory = Limits::infinity();
  report.usage.peak_memory = 0.1;
  report.loss = -Limits::max();
  report.local_square = 0x1.fffffffffffffp-1;
  report.global_square = 1.0 / 3.0;
  report.digest = 0xfedc'ba98'7654'3210U;
  report.stop = true;
  report.signal = -15;
  report.finite = false;
  report.out_of_memory = true;
  report.failed_batch = std::numeric_limits<std::int64_t>::max();
  report.chunkable = true;
  report.exchange = 2.0 / 3.0;
  report.newcomer = true;
  const StepReport back = decode_report(encode(report));
  const auto expect_same = [&](const auto& field) {
    using Value = std::decay_t<decltype(field.of(report))>;
    if constexpr (std::is_same_v<Value, double>) {
      EXPECT_EQ(std::bit_cast<std::uint64_t>(field.of(back)), std::bit_cast<std::uint64_t>(field.of(report)))
          << field.name;
    } else {
      EXPECT_EQ(field.of(back), field.of(report)) << field.name;
    }
    EXPECT_NE(
        std::bit_cast<std::uint64_t>(static_cast<double>(field.of(report))),
        std::bit_cast<std::uint64_t>(static_cast<double>(field.of(StepReport{}))))
        << field.name << " is as it begins, so nothing was tested";
  };
  std::apply([&](const auto&... field) { (expect_same(field), ...); }, kReportFields);
}

TEST(StepReportCodecTest, AnyBitsSurvive) {
  for (std::uint64_t round = 0; round < 1000; ++round) {
    Random random({round});
    StepReport report;
    report.start = std::bit_cast<double>(random.next());
    report.batch = static_cast<std::int64_t>(random.next());
    report.digest = random.next();
    report.signal = static_cast<std::int32_t>(random.next() >> 32U);
    const StepReport back = decode_report(encode(report));
    EXPECT_EQ(std::bit_cast<std::uint64_t>(back.start), std::bit_cast<std::uint64_t>(report.start));
    EXPECT_EQ(back.batch, report.batch);
    EXPECT_EQ(back.digest, report.digest);
    EXPECT_EQ(back.signal, report.signal);
  }
}

// How many members an aggregate has: with how many values it can be made.
struct Anything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): that is what it is for
};
template <class T, class... Values>
constexpr std::size_t members_of() {
  if constexpr (requires { T{Values{}..., Anything{}}; }) {
    return members_of<T, Values..., Anything>();
  } else {
    return sizeof...(Values);
  }
}

TEST(StepReportCodecTest, EveryMemberIsInTheTable) {
  EXPECT_EQ(kUsageFields.size(), members_of<MachineUsage>());
  EXPECT_EQ(std::tuple_size_v<decltype(kReportFields)>, members_of<StepReport>() - 1 + kUsageFields.size());
  // 11 doubles, 3 counts and the digest take 4 numbers each, the signal 2, and 6 flags 1.
  EXPECT_EQ(kReportNumbers, 4U * (11 + 3 + 1) + 2U + 6U);
  EXPECT_EQ(std::tuple_size_v<decltype(kWorkerColumns)>, members_of<WorkerStep>() - 1 + kUsageColumns.size());
}

TEST(StepReportCodecTest, ANumberThatATransportChangedIsRefusedAndNamed) {
  const auto refusal = [](float number) {
    ReportNumbers numbers = encode({});
    numbers[1] = number;  // the second number of the first field
    return failure([&] { (void)decode_report(numbers); });
  };
  for (const float bad : {0.5F, -1.0F, 65536.0F, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_NE(refusal(bad).find("field batch"), std::string::npos) << bad;
  }
  EXPECT_EQ(refusal(65535.0F), "nothing was refused");
}

TEST(StepReportCodecTest, AReportOfAnotherLengthIsRefused) {
  const std::vector<float> numbers(kReportNumbers + 1);
  EXPECT_NE(failure([&] { (void)decode_reports(numbers); }).find("a report of 1 numbers"), std::string::npos);
}

TEST(StepReportTest, ARecordHasTheTimesOfAllWorkers) {
  // a begins at 10 and is done at 10 + 2 + 0.5, b begins at 11 and is done at 14: a waits 1.5 s at the end.
  const std::vector<StepReport> reports{
      {.batch = 6, .items = 6, .start = 10, .seconds = 2, .waited = 0.5, .loss = 1.0},
      {.batch = 2, .items = 2, .start = 11, .seconds = 3, .loss = 5.0}};
  const Decision decision{
      .step = 3, .batch_sizes = {6, 2}, .learning_rate_factor = 0.5, .changed = true, .reason = Reason::kProbing};
  const StepRecord record = make_record(reports, kTwo, decision, {.epoch = 1, .position = 24}, 14.25, 15);
  EXPECT_EQ(record.step, 3);
  EXPECT_EQ(record.epoch, 1);
  EXPECT_EQ(record.position, 24);
  EXPECT_EQ(record.start_seconds, 10);
  EXPECT_EQ(record.seconds, 5);
  EXPECT_EQ(record.loss, 2.0);  // (6 * 1 + 2 * 5) / 8
  EXPECT_EQ(record.learning_rate_factor, 0.5);
  EXPECT_EQ(record.reason, Reason::kProbing);
  ASSERT_EQ(record.workers.size(), 2U);
  EXPECT_EQ(record.workers[0], (WorkerStep{4, 6, 10, 2, 2.0, 0.25, 0.5}));
  EXPECT_EQ(record.workers[1], (WorkerStep{7, 2, 11, 3, 0.0, 0.25}));
}

TEST(StepReportTest, TheLossIsTheMeanOverItemsAndAStandInCountsForNothing) {
  const std::vector<StepReport> reports{
      {.batch = 1, .items = 30, .loss = 1.0},
      {.batch = 1, .items = 10, .loss = 3.0},
      {.batch = 0, .items = 0, .loss = Limits::quiet_NaN()}};
  const std::vector<Worker> workers(3);
  EXPECT_EQ(make_record(reports, workers, {}, {}, 0, 0).loss, 1.5);  // (30 + 30) / 40
}

TEST(StepReportTest, APolicyLearnsNothingFromAStepThatWasNotWarm) {
  const std::vector<StepReport> reports{{.batch = 8, .seconds = 2.0, .warm = false}, {.batch = 8, .seconds = 1.0}};
  const StepTelemetry telemetry = make_telemetry(reports, kTwo, 3);
  const std::vector<Reading> readings = align(telemetry, {.workers = {kTwo.begin(), kTwo.end()}, .global_batch = 16});
  EXPECT_FALSE(readings[0].valid);
  EXPECT_TRUE(readings[0].cold);
  EXPECT_EQ(readings[0].seconds, 2.0);  // what the size cost is learned from it
  EXPECT_TRUE(readings[1].valid);
  EXPECT_FALSE(readings[1].cold);
  EXPECT_EQ(make_record(reports, kTwo, {}, {}, 2.0, 2.5).workers[0].compute_seconds, 2.0);
}

TEST(StepReportTest, EveryFigureOfTheUsageReachesThePolicyAndThoseThatAreLoggedTheRecord) {
  std::vector<StepReport> reports(2);
  double value = 0.0;
  for (StepReport& report : reports) {
    for (const UsageField& field : kUsageFields) {
      report.usage.*field.member = value += 0.0625;
    }
  }
  const StepTelemetry telemetry = make_telemetry(reports, kTwo, 0);
  const std::vector<Reading> readings = align(telemetry, {.workers = kTwo, .global_batch = 8});
  const StepRecord record = make_record(reports, kTwo, {}, {}, 0, 0);
  for (std::size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(readings[k].usage, reports[k].usage);
    for (const UsageField& field : kUsageFields) {
      const double logged = field.logged ? reports[k].usage.*field.member : 0.0;
      EXPECT_EQ(record.workers[k].usage.*field.member, logged) << field.name;
    }
  }
}

TEST(StepReportTest, EveryWorkersSyncPointsReachThePolicy) {
  const std::vector<StepReport> reports{{.batch = 1, .sync_points = 21}, {.batch = 1, .sync_points = 3}};
  const StepTelemetry telemetry = make_telemetry(reports, kTwo, 0);
  EXPECT_EQ(telemetry.workers[0].sync_points, 21);
  EXPECT_EQ(telemetry.workers[1].sync_points, 3);
}

TEST(StepReportTest, MomentsAddUpAndRankZerosAverageCounts) {
  const std::vector<StepReport> reports{
      {.local_square = 1.5, .global_square = 4.0}, {.local_square = 2.5, .global_square = 4.5}};
  const GradientMoments moments = make_moments(reports);
  EXPECT_EQ(moments.mean_local_square, 4.0);
  EXPECT_EQ(moments.global_square, 4.0);
  EXPECT_EQ(moments.workers, 2);
}

TEST(StepReportTest, WhoeverDisagreesIsNamed) {
  std::vector<StepReport> reports(3, StepReport{.batch = 2, .digest = 99});
  const std::vector<std::int64_t> batches{2, 2, 2};
  check_agreement(reports, batches, 5);
  reports[2].digest ^= std::uint64_t{1} << 63U;
  const auto trouble = [&] { return failure([&] { check_agreement(reports, batches, 5); }); };
  EXPECT_NE(trouble().find("step 5: rank 2 does not agree with rank 0"), std::string::npos);
  reports[0].batch = 3;  // as the one that disagrees sees it, whose split is another
  EXPECT_NE(trouble().find("step 5: rank 2 does not agree with rank 0"), std::string::npos);
  reports[0].batch = 2;
  reports[2].digest = 99;
  reports[1].batch = 3;
  EXPECT_NE(trouble().find("rank 1 does not agree with this worker"), std::string::npos);
  reports.pop_back();
  EXPECT_NE(trouble().find("reports of 2 workers; permitted: those of all 3"), std::string::npos);
}

TEST(StepReportTest, ALossOrAGradientThatIsNotFiniteIsFound) {
  std::vector<StepReport> reports(4);
  reports[1].loss = Limits::quiet_NaN();
  reports[2].finite = false;
  EXPECT_EQ(non_finite_ranks(reports), (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace isochron
