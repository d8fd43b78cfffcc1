#include "isochron/engine/report.h"

#include <algorithm>
#include <string>

#include "isochron/core/error.h"
#include "isochron/core/random/random.h"

namespace isochron {
namespace {

double end_of(const Report& report) {
  return report.start + report.seconds + report.waited;
}

double total_batch(std::span<const Report> reports) {
  double total = 0.0;
  for (const Report& report : reports) {
    total += report.batch;
  }
  return total;
}

// Of the global batch. A worker without samples computed a stand-in, whose loss counts for nothing.
double mean_loss(std::span<const Report> reports) {
  double sum = 0.0;
  for (const Report& report : reports) {
    sum += report.batch > 0 ? report.batch * report.loss : 0.0;
  }
  return sum / total_batch(reports);
}

StepRecord begin_record(const Decision& decision, const SamplerState& place) {
  StepRecord record{.step = decision.step, .epoch = place.epoch, .position = place.position};
  record.learning_rate_factor = decision.learning_rate_factor;
  record.changed = decision.changed;
  record.reason = decision.reason;
  record.words = decision.words;
  return record;
}

}  // namespace

double digest(const Decision& decision, const SamplerState& place) {
  std::uint64_t key = mix_key(
      {static_cast<std::uint64_t>(decision.step),
       static_cast<std::uint64_t>(place.epoch),
       static_cast<std::uint64_t>(place.position)});
  for (const std::int64_t batch : decision.batch_sizes) {
    key = mix_key({key, static_cast<std::uint64_t>(batch)});
  }
  return static_cast<double>(key >> 11U);
}

void check_agreement(std::span<const Report> reports, std::int64_t step) {
  for (std::size_t rank = 1; rank < reports.size(); ++rank) {
    if (reports[rank].decision != reports.front().decision) {
      throw Error(
          "step " + std::to_string(step) + ": rank " + std::to_string(rank) +
          " does not agree with rank 0 on the step, its samples or its split; all workers must run the same program, "
          "on "
          "machines whose floating-point results agree");
    }
  }
}

StepRecord make_record(
    std::span<const Report> reports,
    std::span<const Worker> workers,
    const Decision& decision,
    const SamplerState& place,
    double finished,
    double now) {
  StepRecord record = begin_record(decision, place);
  record.start_seconds = std::ranges::min(reports, {}, &Report::start).start;
  record.seconds = now - record.start_seconds;
  record.loss = mean_loss(reports);
  const double last = end_of(std::ranges::max(reports, {}, end_of));
  for (std::size_t k = 0; k < reports.size(); ++k) {
    record.workers.push_back(
        {.id = workers[k].id,
         .batch = static_cast<std::int64_t>(reports[k].batch),
         .start_seconds = reports[k].start,
         .compute_seconds = reports[k].seconds,
         .wait_seconds = reports[k].waited + last - end_of(reports[k]),
         .exchange_seconds = std::max(finished - last, 0.0)});
  }
  return record;
}

StepRecord make_unreported_record(
    std::span<const Interval> slices,
    std::span<const Worker> workers,
    const Decision& decision,
    const SamplerState& place,
    double now) {
  StepRecord record = begin_record(decision, place);
  record.start_seconds = now;
  for (std::size_t k = 0; k < slices.size(); ++k) {
    record.workers.push_back({.id = workers[k].id, .batch = slices[k].size(), .start_seconds = now});
  }
  return record;
}

StepTelemetry make_telemetry(std::span<const Report> reports, std::span<const Worker> workers, std::int64_t step) {
  StepTelemetry telemetry{.step = step};
  for (std::size_t k = 0; k < reports.size(); ++k) {
    telemetry.workers.push_back(
        {.worker = workers[k].id,
         .batch = static_cast<std::int64_t>(reports[k].batch),
         .seconds = reports[k].warm != 0.0 ? reports[k].seconds : kUnknown,
         .cpu = reports[k].cpu,
         .memory = reports[k].memory,
         .meetings = static_cast<std::int64_t>(reports[k].meetings)});
  }
  return telemetry;
}

GradientMoments make_moments(std::span<const Report> reports) {
  GradientMoments moments{.global_square = reports.front().global_square, .workers = std::ssize(reports)};
  for (const Report& report : reports) {
    moments.mean_local_square += report.local_square;
  }
  return moments;
}

}  // namespace isochron
