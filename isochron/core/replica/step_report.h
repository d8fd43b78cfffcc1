// What a worker reports of a step that it has computed, how the report travels, and what all reports together say.
// Pure: every worker computes the same from the same reports.
//
// A report travels as a list of whole numbers below 2^16, four for a 64-bit field, so that every bit of it survives any
// transport that keeps single precision: an all-gather of floats or doubles, and an all-reduce that adds zeros. The
// fields are listed once, in kReportFields, those of the usage in kUsageFields; codec and Python binding follow.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "isochron/core/policy/controller.h"
#include "isochron/core/rate/rate.h"
#include "isochron/core/telemetry.h"
#include "isochron/core/trace/run_log.h"
#include "isochron/core/worker.h"

namespace isochron {

struct StepReport {
  std::int64_t batch = 0;        // samples that it computed
  double items = -1.0;           // what the loss is the mean over: samples, or for instance tokens; -1: the batch
  double start = 0.0;            // of the step, seconds on this worker's clock since the job began
  double seconds = 0.0;          // computing to the last local gradient, waiting excluded
  bool warm = true;              // false: the device's first step with this size, or one that compiled
  double waited = 0.0;           // within that time, for the others, such as for statistics of BatchNorm
  std::int64_t sync_points = 1;  // how often it waited for all others, the end of the step included
  MachineUsage usage;            // of its own machine, in that time
  double loss = 0.0;             // mean over its items
  double local_square = 0.0;     // of the step before: b_k / B times the squared norm of its own mean gradient
  double global_square = 0.0;    // of the step before: squared norm of the averaged gradient
  std::uint64_t digest = 0;      // of what this worker believes the step to be
  bool stop = false;             // the job is to end after this step
  std::int32_t signal = 0;       // the signal that asks for it; 0: none
  bool finite = true;            // false: its own gradient is not, as far as it was looked at
  bool out_of_memory = false;    // its memory did not hold failed_batch samples, so the step did not happen
  std::int64_t failed_batch = 0;
  bool chunkable = false;  // if out_of_memory: it can compute a batch in chunks
  double exchange = 0.0;   // seconds that averaging took in the round before, with sync local; 0: unknown
  bool newcomer = false;   // a worker is ready to join; rank 0's word counts

  bool operator==(const StepReport&) const = default;
};

template <class T>
struct ReportField {
  const char* name = "";
  T StepReport::* member = nullptr;  // null: it is of the usage
  T MachineUsage::* usage = nullptr;

  [[nodiscard]] constexpr T& of(StepReport& report) const {
    return usage != nullptr ? report.usage.*usage : report.*member;
  }
  [[nodiscard]] constexpr const T& of(const StepReport& report) const {
    return usage != nullptr ? report.usage.*usage : report.*member;
  }
  /// How many numbers it takes on its way.
  static constexpr std::size_t kNumbers = sizeof(T) <= 2 ? 1 : sizeof(T) / 2;
};

inline constexpr auto kReportUsageFields = [] {
  std::array<ReportField<double>, kUsageFields.size()> fields;
  std::ranges::transform(kUsageFields, fields.begin(), [](const UsageField& field) {
    return ReportField<double>{.name = field.name.data(), .usage = field.member};
  });
  return fields;
}();

inline constexpr auto kReportFields = std::tuple_cat(
    std::tuple{
        ReportField{"batch", &StepReport::batch},
        ReportField{"items", &StepReport::items},
        ReportField{"start", &StepReport::start},
        ReportField{"seconds", &StepReport::seconds},
        ReportField{"warm", &StepReport::warm},
        ReportField{"waited", &StepReport::waited},
        ReportField{"sync_points", &StepReport::sync_points},
        ReportField{"loss", &StepReport::loss},
        ReportField{"local_square", &StepReport::local_square},
        ReportField{"global_square", &StepReport::global_square},
        ReportField{"digest", &StepReport::digest},
        ReportField{"stop", &StepReport::stop},
        ReportField{"signal", &StepReport::signal},
        ReportField{"finite", &StepReport::finite},
        ReportField{"out_of_memory", &StepReport::out_of_memory},
        ReportField{"failed_batch", &StepReport::failed_batch},
        ReportField{"chunkable", &StepReport::chunkable},
        ReportField{"exchange", &StepReport::exchange},
        ReportField{"newcomer", &StepReport::newcomer},
    },
    kReportUsageFields);

/// Length of an encoded report.
inline constexpr std::size_t kReportNumbers =
    std::apply([](const auto&... field) { return (... + std::decay_t<decltype(field)>::kNumbers); }, kReportFields);
using ReportNumbers = std::array<float, kReportNumbers>;

ReportNumbers encode(const StepReport& report);
/// Throws isochron::Error that names the field if the numbers are not those that were sent.
StepReport decode_report(std::span<const float> numbers);
/// The reports of all ranks, one after the other.
std::vector<StepReport> decode_reports(std::span<const float> numbers);

/// Throws isochron::Error naming the first rank whose digest is not rank 0's, the same on all workers; if there is
/// none, the first whose batch is not its slice.
void check_agreement(std::span<const StepReport> reports, std::span<const std::int64_t> batches, std::int64_t step);

/// Ranks whose loss or own gradient is not finite. Who has no loss, since it has no samples, reports 0.
std::vector<int> non_finite_ranks(std::span<const StepReport> reports);

/// What the controller learns. A step that was not warm is cold: its time says nothing about the worker's speed.
StepTelemetry make_telemetry(std::span<const StepReport> reports, std::span<const Worker> workers, std::int64_t step);

/// The moments of the step before. Hardware may round norms differently, so rank 0's value counts for the average.
GradientMoments make_moments(std::span<const StepReport> reports);

/// The record of the step that `decision` is for, at this epoch and position. `finished`: when the gradients were
/// averaged, on this worker's clock; the end of the step is `now`.
struct StepPlace {
  std::int64_t epoch = 0;
  std::int64_t position = 0;
};
StepRecord make_record(
    std::span<const StepReport> reports,
    std::span<const Worker> workers,
    const Decision& decision,
    const StepPlace& place,
    double finished,
    double now);
/// The record of a step whose reports are lost.
StepRecord make_unreported_record(
    std::span<const std::int64_t> batches,
    std::span<const Worker> workers,
    const Decision& decision,
    const StepPlace& place,
    double now);

}  // namespace isochron
