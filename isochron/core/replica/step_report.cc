#include "isochron/core/replica/step_report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "isochron/core/error.h"

namespace isochron {
namespace {

constexpr unsigned kBits = 16;  // of a number on its way; single precision holds 24
constexpr std::uint64_t kMask = (std::uint64_t{1} << kBits) - 1;

template <class T>
std::uint64_t to_bits(T value) {
  if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(value);
  } else {
    return static_cast<std::uint64_t>(value);
  }
}

template <class T>
T from_bits(std::uint64_t bits) {
  if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(bits);
  } else if constexpr (std::is_same_v<T, bool>) {
    return bits != 0;
  } else {
    return static_cast<T>(bits);
  }
}

std::uint64_t checked_number(float number, const char* field) {
  if (!(number >= 0.0F && number <= static_cast<float>(kMask) && std::trunc(number) == number)) {
    throw Error(
        std::string("the field ") + field + " of a report arrived as " + std::to_string(number) +
        "; what carries reports must keep whole numbers below 65536 as they are");
  }
  return static_cast<std::uint64_t>(number);
}

// When the worker was done, on its own clock.
double end_of(const StepReport& report) {
  return report.start + report.seconds + report.waited;
}

// A worker without samples computed a stand-in, whose loss counts for nothing.
double mean_loss(std::span<const StepReport> reports) {
  double sum = 0.0;
  double items = 0.0;
  for (const StepReport& report : reports) {
    sum += report.items > 0 ? report.items * report.loss : 0.0;
    items += report.items;
  }
  return sum / items;
}

StepRecord begin_record(const Decision& decision, const StepPlace& place) {
  StepRecord record{.step = decision.step, .epoch = place.epoch, .position = place.position};
  record.learning_rate_factor = decision.learning_rate_factor;
  record.changed = decision.changed;
  record.reason = decision.reason;
  record.words = decision.words;
  return record;
}

}  // namespace

ReportNumbers encode(const StepReport& report) {
  ReportNumbers numbers{};
  auto next = numbers.begin();
  const auto add = [&](const auto& field) {
    std::uint64_t bits = to_bits(field.of(report));
    for (std::size_t i = 0; i < field.kNumbers; ++i, bits >>= kBits) {
      *next++ = static_cast<float>(bits & kMask);
    }
  };
  std::apply([&](const auto&... field) { (add(field), ...); }, kReportFields);
  return numbers;
}

StepReport decode_report(std::span<const float> numbers) {
  if (numbers.size() != kReportNumbers) {
    throw Error(
        "a report of " + std::to_string(numbers.size()) +
        " numbers arrived; permitted: " + std::to_string(kReportNumbers) + ", since all workers run the same version");
  }
  StepReport report;
  auto next = numbers.begin();
  const auto take = [&](const auto& field) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < field.kNumbers; ++i) {
      bits |= checked_number(*next++, field.name) << (kBits * i);
    }
    field.of(report) = from_bits<std::decay_t<decltype(field.of(report))>>(bits);
  };
  std::apply([&](const auto&... field) { (take(field), ...); }, kReportFields);
  return report;
}

std::vector<StepReport> decode_reports(std::span<const float> numbers) {
  std::vector<StepReport> reports;
  reports.reserve(numbers.size() / kReportNumbers);
  for (std::size_t first = 0; first < numbers.size(); first += kReportNumbers) {
    reports.push_back(decode_report(numbers.subspan(first, std::min(kReportNumbers, numbers.size() - first))));
  }
  return reports;
}

void check_agreement(std::span<const StepReport> reports, std::span<const std::int64_t> batches, std::int64_t step) {
  const std::string where = "step " + std::to_string(step) + ": ";
  if (reports.size() != batches.size()) {
    throw Error(
        where + "there are reports of " + std::to_string(reports.size()) + " workers; permitted: those of all " +
        std::to_string(batches.size()));
  }
  const auto refuse = [&where](std::size_t rank, const char* whom) {
    throw Error(
        where + "rank " + std::to_string(rank) + " does not agree with " + whom +
        " on the step, its samples or its split; all workers must run the same program, on machines whose "
        "floating-point results agree");
  };
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].digest != reports.front().digest) {
      refuse(rank, "rank 0");
    }
  }
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].batch != batches[rank]) {
      refuse(rank, "this worker");
    }
  }
}

std::vector<int> non_finite_ranks(std::span<const StepReport> reports) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (!reports[rank].finite || !std::isfinite(reports[rank].loss)) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

StepTelemetry make_telemetry(std::span<const StepReport> reports, std::span<const Worker> workers, std::int64_t step) {
  StepTelemetry telemetry{.step = step};
  telemetry.workers.reserve(reports.size());
  for (std::size_t k = 0; k < reports.size(); ++k) {
    telemetry.workers.push_back(
        {.worker = workers[k].id,
         .batch = reports[k].batch,
         .seconds = reports[k].seconds,
         .usage = reports[k].usage,
         .sync_points = reports[k].sync_points,
         .cold = !reports[k].warm});
  }
  return telemetry;
}

GradientMoments make_moments(std::span<const StepReport> reports) {
  GradientMoments moments{.global_square = reports.front().global_square, .workers = std::ssize(reports)};
  for (const StepReport& report : reports) {
    moments.mean_local_square += report.local_square;
  }
  return moments;
}

StepRecord make_record(
    std::span<const StepReport> reports,
    std::span<const Worker> workers,
    const Decision& decision,
    const StepPlace& place,
    double finished,
    double now) {
  StepRecord record = begin_record(decision, place);
  record.start_seconds = std::ranges::min(reports, {}, &StepReport::start).start;
  record.seconds = now - record.start_seconds;
  record.loss = mean_loss(reports);
  const double last = end_of(std::ranges::max(reports, {}, end_of));
  record.workers.reserve(reports.size());
  for (std::size_t k = 0; k < reports.size(); ++k) {
    record.workers.push_back(
        {.id = workers[k].id,
         .batch = reports[k].batch,
         .start_seconds = reports[k].start,
         .compute_seconds = reports[k].seconds,
         .wait_seconds = reports[k].waited + last - end_of(reports[k]),
         .exchange_seconds = std::max(finished - last, 0.0),
         .inner_wait_seconds = reports[k].waited,
         .usage = logged(reports[k].usage)});
  }
  return record;
}

StepRecord make_unreported_record(
    std::span<const std::int64_t> batches,
    std::span<const Worker> workers,
    const Decision& decision,
    const StepPlace& place,
    double now) {
  StepRecord record = begin_record(decision, place);
  record.start_seconds = now;
  for (std::size_t k = 0; k < batches.size(); ++k) {
    record.workers.push_back({.id = workers[k].id, .batch = batches[k], .start_seconds = now});
  }
  return record;
}

}  // namespace isochron
